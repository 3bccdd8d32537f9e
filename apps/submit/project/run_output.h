// SPDX-License-Identifier: Apache-2.0
// What a run printed for people, once or as it comes.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/jobs/schedulers.h"

namespace tessera::submit {

// One attempt, and where to ask about it.
struct RunOutput {
  std::string run;
  int attempt = 1;
  std::filesystem::path run_dir;
  std::string cluster;
  std::string why;  // it was chosen, if nobody named the run: "the only one that runs"
};

// `text` as find_run takes it; empty: the project's only running run, else that of the newest
// hand-over that has output. `attempt` 0: the newest. Error(empty) if there is no such run or
// attempt, or it was never started; Error(usage) if several fit; Error(conflict) if no line of the
// ledger can be believed.
RunOutput choose_output(const std::filesystem::path& project_dir, jobs::Schedulers& schedulers,
                        const std::string& text, int attempt);

// Prints files as far as they are new. Each piece has a heading with its file's name as soon as
// there are several.
class OutputPrinter {
 public:
  using Sink = std::function<void(std::string_view)>;
  explicit OutputPrinter(Sink sink) : sink_(std::move(sink)) {}

  // What the files hold that has not been printed; one that is not there yet may come, one that was
  // replaced or cut is printed from its beginning. Whether there was anything. Error(io).
  bool print_new(std::span<const std::filesystem::path> files);
  bool has_printed() const { return !last_.empty(); }

 private:
  struct Seen {
    dev_t device = 0;
    ino_t inode = 0;
    off_t printed = 0;
  };
  void print(const std::filesystem::path& file, std::string_view bytes, bool heading);

  Sink sink_;
  std::map<std::filesystem::path, Seen> seen_;
  std::filesystem::path last_;  // printed from
  bool line_open_ = false;
};

// All that is there. Error(empty) that says why there is nothing.
void print_output(const std::filesystem::path& project_dir, jobs::Schedulers& schedulers,
                  const RunOutput& output, const OutputPrinter::Sink& sink);

// The same, and goes on until the attempt has ended: by its footer, its cluster or the ledger.
// `note`: the cluster does not answer, and why.
void follow_output(const std::filesystem::path& project_dir, jobs::Schedulers& schedulers,
                   const RunOutput& output, const OutputPrinter::Sink& sink,
                   const std::function<void(const std::string&)>& note);

}  // namespace tessera::submit
