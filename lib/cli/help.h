// SPDX-License-Identifier: Apache-2.0
// The help and the man page of a command, from what it describes.
#pragma once

#include <string>

#include "lib/cli/command.h"

namespace tessera::cli {

// No line is longer than this, as long as no word is.
inline constexpr std::size_t kHelpColumns = 80;

// Usage, arguments, flags by group, examples and exit codes.
std::string help_text(const Command& command);

// The page of section 1 in man(7)'s roff: the program, then each of its verbs.
std::string man_page(const Command& program);

// The exit codes of a command and what each means there, ascending.
std::vector<std::pair<ExitCode, std::string>> exit_codes_of(const Command& command);

}  // namespace tessera::cli
