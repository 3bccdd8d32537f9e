// The outermost part of a program: a fault is one line on stderr and an exit code, and output that
// could not be printed is a fault.
#pragma once

#include <functional>

#include "lib/base/error.h"

namespace tessera::cli {

// The exit code of `run`, or of what it throws, which is printed as "NAME: what"; what begins with
// "NAME verb: " has its name once. unknown_fault: of exceptions that are no Error.
int run_program(const char* name, ExitCode unknown_fault, const std::function<int()>& run);

// Error(code) if not all that was written to stdout has got there, as on a full disk. To be called
// when all is written.
void require_printed(ExitCode code);

}  // namespace tessera::cli
