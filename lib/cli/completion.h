// SPDX-License-Identifier: Apache-2.0
// Scripts by which a shell completes the flags, verbs and values of a program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/cli/command.h"

namespace tessera::cli {

// "bash|zsh|fish", as a type_name.
extern const char* const kShells;

// The script for a shell, to be sourced, for a program that has verbs. Throws Error(usage) for
// another shell.
std::string completion_script(const CLI::App& program, std::string_view shell);

}  // namespace tessera::cli
