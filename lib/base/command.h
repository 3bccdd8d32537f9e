// Runs another program and takes what it prints.
#pragma once

#include <string>
#include <vector>

namespace tessera {

struct CommandResult {
  int exit_code = 0;  // 128 + n: ended by signal n; 127: it could not be started
  std::string out;
  std::string err;
};

// arguments[0] is looked up in PATH unless it holds a slash; no shell. Standard input is empty.
// Waits until it ends. Error(io) if no process can be made.
CommandResult run_command(const std::vector<std::string>& arguments);

}  // namespace tessera
