// Programs that a test starts, listens to and ends.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "lib/base/file.h"

namespace tessera::trainer::test {

// The program launch_rank (launch_rank.cpp says what its arguments do).
std::string launch_rank_path();

class Process {
 public:
  // Starts it with `variables` on top of the environment; its stdout comes here, and its stderr too
  // if `err`. `open_files`: no more than so many at once, if not 0.
  Process(std::vector<std::string> command, const std::map<std::string, std::string>& variables,
          bool err = false, int open_files = 0);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  // kills it if it still runs

  pid_t pid() const { return pid_; }
  // The next line without line feed; empty at the end, which comes when all that have its stdout
  // have closed it.
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

// The variables of rank `rank` of `ranks` on one node.
std::map<std::string, std::string> rank_variables(int rank, int ranks);

}  // namespace tessera::trainer::test
