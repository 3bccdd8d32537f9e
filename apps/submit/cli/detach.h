// SPDX-License-Identifier: Apache-2.0
// A submission that goes on in the background once it is known to have begun.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "apps/submit/loop/submit.h"
#include "lib/base/file.h"

namespace tessera::apps {

// Two processes from `begin` on: the one that was called waits for the word of the other, which
// does the work. Until that word all is as in one process: output, faults, exit codes, Ctrl-C. From
// then on the worker has a session of its own and writes to <project>/.tessera/submit.<utc>.log:
// neither the end of the caller nor that of its terminal reaches it. It holds the project's lock,
// so that submit cancel ends it. To be used while the program has one thread.
class Detachment {
 public:
  // In the worker: nothing. In the caller, when the worker has gone to the background or ended:
  // what to exit with. Error(io) if no process can be made.
  std::optional<int> begin(const std::string& project);

  // In the worker: lets go of the caller once the selection has been shown, unless there is nothing
  // to do: then the caller waits for the last word.
  void hook(submit::SubmitEvents& events, const std::filesystem::path& project_dir);

 private:
  void go(const std::filesystem::path& project_dir);

  FileDescriptor word_;  // to the caller; open: not detached yet
};

}  // namespace tessera::apps
