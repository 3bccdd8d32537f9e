// Faults of a command line, said as every other fault is: one line that names the flag.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tessera::cli {

// What CLI11 found wrong while `app` parsed, as Error(usage): "--where: is given twice", "--where:
// needs a value", "--wher: is no flag; did you mean --where?". Not for CLI::Success (--help,
// --version).
Error command_line_error(const CLI::App& app, const CLI::ParseError& fault);

// Error(usage), "--where: is empty", if a text or a list's item that was given for `flag` (or for a
// positional argument, by its name in `app`) is empty. Call it after parsing; flags of the
// subcommand that was used are looked up there.
void refuse_empty(const CLI::App& app, const std::string& flag);

// refuse_empty for every option of `app` and of its used subcommands.
void refuse_empty_values(const CLI::App& app);

}  // namespace tessera::cli
