// SPDX-License-Identifier: Apache-2.0
// Runs another program and takes what it prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tessera {

// Exit code of a program that is not there or cannot be started, as shells give it.
inline constexpr int kNoProgram = 127;

struct CommandResult {
  int exit_code = 0;  // 128 + n: ended by signal n; 127: it could not be started
  std::string out;
  std::string err;
  bool timed_out = false;  // ended by us at its time limit: what it did before is not known
};

struct CommandOptions {
  // "NAME=value" of all its variables; nothing: ours.
  std::optional<std::vector<std::string>> environment;
  std::string input;   // its standard input
  double limit_s = 0;  // then SIGKILL to it and what it started; 0: none
  // It is killed when the calling thread ends, however that ends.
  bool dies_with_caller = false;
};

// arguments[0] is looked up in our PATH unless it holds a slash; no shell. With a limit it is in a
// process group of its own, so that a Ctrl-C for us does not reach it. Waits until it ends.
// Error(io) if no process can be made.
CommandResult run_command(const std::vector<std::string>& arguments,
                          const CommandOptions& options = {});

}  // namespace tessera
