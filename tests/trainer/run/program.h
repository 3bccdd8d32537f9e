// SPDX-License-Identifier: Apache-2.0
// Runs the real program `trainer`.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/point/run_spec.h"
#include "tests/temporary.h"

namespace tessera::trainer::test {

struct ProgramResult {
  int exit_code = -1;  // 128 + n if signal n ended it
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::vector<std::string> arguments;
  std::string input;                     // its stdin
  std::vector<std::string> environment;  // NAME=value, added to ours
  std::filesystem::path program;         // else the trainer of this build
  int signal = 0;                        // sent once `when` holds
  std::function<bool()> when = [] { return true; };
};

ProgramResult run_trainer(const ProgramOptions& options);

// A trainer that runs beside the test.
class StartedTrainer {
 public:
  explicit StartedTrainer(const ProgramOptions& options);  // sends no signal
  pid_t pid() const { return pid_; }
  // Returns the process of a rank that `trainer --nproc` has started, once it is there.
  pid_t rank(int rank) const;
  ProgramResult wait();

 private:
  tessera::test::TemporaryFolder folder_;
  pid_t pid_ = -1;
};

// Returns the specification of a run of a second or less into `run_dir` ("": records to stdout). It
// gives the peak, so that nothing is measured.
sweep::RunSpec small_spec(const std::filesystem::path& run_dir);

// Trains a specification that is passed through stdin.
ProgramResult train_spec(const sweep::RunSpec& spec);

std::filesystem::path trainer_path();

// Returns the path of the only log in the folder.
std::filesystem::path log_in(const std::filesystem::path& run_dir);

// Returns the records of a log in order, after checking every seal.
std::vector<nlohmann::ordered_json> records_of(const std::string& log);

// The row that the log's row records have together; they must stand right before the footer.
nlohmann::ordered_json row_of(const std::vector<nlohmann::ordered_json>& records);

}  // namespace tessera::trainer::test
