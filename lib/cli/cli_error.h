// SPDX-License-Identifier: Apache-2.0
// Faults of a command line, said as every other fault is: one line that names the flag and what to
// do.
#pragma once

#include <string>

#include "lib/base/error.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tessera::cli {

// What CLI11 found wrong while `program` parsed, as Error(usage): "--where: is given twice; give it
// once", "--wher: is no flag of submit; did you mean --where?", "--watch: does not go with submit;
// write submit status --watch". Not for CLI::Success (--help, --version).
Error command_line_error(const CLI::App& program, const CLI::ParseError& fault);

// Throws Error(usage), "--where: is empty", if a text or a list's item that was given is empty:
// that is a script's variable that was not set, never a wish. Options that may stand without a
// value may be empty. Call it after parsing.
void refuse_empty_values(const CLI::App& program);

}  // namespace tessera::cli
