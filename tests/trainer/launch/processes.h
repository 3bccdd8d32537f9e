// SPDX-License-Identifier: Apache-2.0
// Programs that a test starts, reads from and ends.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "lib/base/file.h"

namespace tessera::trainer::test {

// Returns the path of launch_rank (launch_rank.cpp says what its arguments do).
std::string launch_rank_path();

class Process {
 public:
  // Starts a program with `variables` added to the environment; the test reads its stdout, and its
  // stderr too if `err`. `open_files`: the limit of its open files; 0: none.
  Process(std::vector<std::string> command, const std::map<std::string, std::string>& variables,
          bool err = false, int open_files = 0);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  // kills it if it still runs

  pid_t pid() const { return pid_; }
  // Returns the next line without its line feed; empty at the end, which comes when all processes
  // that have its stdout have closed it.
  std::string line();
  std::string rest();  // up to the end
  void signal(int number) const;
  int wait();  // its exit code, 128 + n for signal n

 private:
  bool fill();

  pid_t pid_ = 0;
  bool ended_ = false;
  FileDescriptor out_;
  std::string text_;
};

// Returns the variables of rank `rank` of `ranks` on one node.
std::map<std::string, std::string> rank_variables(int rank, int ranks);

}  // namespace tessera::trainer::test
