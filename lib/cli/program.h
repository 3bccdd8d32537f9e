// SPDX-License-Identifier: Apache-2.0
// The outermost part of a program: its command line is parsed and acted on, a fault is one line on
// stderr and an exit code, and output that could not be printed is a fault.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/cli/command.h"

namespace tessera::cli {

// The exit code of `run`, or of what it throws, which is printed as "NAME: what"; what begins with
// "NAME verb: " has its name once. unprinted: where stdout takes no more; unknown_fault: of other
// exceptions that are no Error.
int run_program(const char* name, ExitCode unprinted, ExitCode unknown_fault,
                const std::function<int()>& run);

// Error(code) if not all that was written to stdout has got there, as on a full disk. To be called
// when all is written.
void require_printed(ExitCode code);

// Whether a program prints its completion scripts by a verb or, where an argument could be meant by
// that word, by a flag.
enum class CompletionBy { verb, flag };

// Declares --version, --man and the completion scripts.
void add_general_flags(Command& program, CompletionBy completion);

// Parses the words behind the program's name, old spellings too (old_spellings.h), and runs the
// action of the verb, or of `program` if there is none. Returns the exit code: 0 if help, version,
// man page or a completion script was asked for and printed. Throws Error(usage) for a wrong
// command line, Error(`unprinted`) if what was asked for could not be printed, and what the action
// throws.
int run_command_line(Command& program, const std::vector<std::string>& words, ExitCode unprinted);

// The words behind the program's name.
std::vector<std::string> words_of(int argc, const char* const* argv);

}  // namespace tessera::cli
