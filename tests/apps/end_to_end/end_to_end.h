// SPDX-License-Identifier: Apache-2.0
// submit, trainer and collect as a user runs them, on a tiny decoder, in a folder of the test's
// own.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/cluster/local/process.h"
#include "lib/ledger/ledger.h"
#include "lib/ledger/state.h"
#include "tests/temporary.h"

namespace tessera::test {

inline bool wait_until(const std::function<bool()>& condition, int seconds = 60) {
  for (int tries = 0; tries < 50 * seconds; ++tries) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

class EndToEnd {
 public:
  EndToEnd() {
    write_file_atomically(folder_ / "tiny.yaml", R"(tessera_model: 1
name: tiny
d_model: 32
n_layers: 1
n_heads: 1
ffn: 64
vocab: 128
max_seq_len: 16
lr: 1.0e-3
)");
    // This machine's peak, once it is known, so that not every test measures it anew.
    if (const auto known = read_file_if_exists(peaks())) {
      std::filesystem::create_directories(folder_ / "state");
      write_file_atomically(folder_ / "state/cpu-peaks.json", *known);
    }
  }

  ~EndToEnd() {
    std::error_code none_was_measured;
    std::filesystem::copy_file(folder_ / "state/cpu-peaks.json", peaks(),
                               std::filesystem::copy_options::overwrite_existing,
                               none_was_measured);
  }
  EndToEnd(const EndToEnd&) = delete;
  EndToEnd& operator=(const EndToEnd&) = delete;

  // `steps` decides how long a point takes: 12 are over at once, 100000 take a minute.
  void write_sweep(const std::string& name, const std::string& batches, int steps,
                   const std::string& more = "") const {
    write_file_atomically(
        folder_ / name,
        "tessera_sweep: 1\nproject: e2e\n"
        "defaults: {cluster: local, gpu: cpu, gpus: 1, threads: 1, microbatch_size: 1, warmup: 2,\n"
        "           precision: fp32, steps: " +
            std::to_string(steps) +
            "}\n"
            "matrix: {model: tiny.yaml, seq_len: 16, global_batch: " +
            batches + "}\n" + more);
  }

  std::vector<std::string> command(const std::string& program,
                                   const std::vector<std::string>& arguments) const {
    std::vector<std::string> words{"/usr/bin/env", "-C", folder_.path().string(),
                                   "TESSERA_STATE_DIR=" + (folder_ / "state").string(),
                                   EndToEnd::program(program)};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return words;
  }

  // Where a program of the build is.
  static std::string program(const std::string& name) {
    const char* bin = std::getenv("TESSERA_BIN");
    REQUIRE(bin != nullptr);
    return std::string(bin) + "/" + name;
  }

  CommandResult run(const std::string& program, const std::vector<std::string>& arguments) const {
    return run_command(command(program, arguments));
  }

  // In the background; `env -C` becomes the program itself, so signals reach it.
  pid_t start(const std::string& program, const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = command(program, arguments);
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t quiet;
    ::posix_spawn_file_actions_init(&quiet);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      ::posix_spawn_file_actions_addopen(&quiet, stream, "/dev/null", O_WRONLY, 0);
    }
    pid_t pid = 0;
    REQUIRE(::posix_spawn(&pid, pointers[0], &quiet, nullptr, pointers.data(), ::environ) == 0);
    ::posix_spawn_file_actions_destroy(&quiet);
    return pid;
  }

  static int exit_code(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  const TemporaryFolder& folder() const { return folder_; }
  std::filesystem::path project() const { return folder_ / "runs/e2e"; }
  std::map<std::string, ledger::RunState> states() const {
    return ledger::run_states(ledger::read_ledger(project()));
  }

  // Log files of all runs.
  std::vector<std::filesystem::path> logs() const {
    std::vector<std::filesystem::path> found;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(project(), ignored)) {
      if (entry.path().filename().string().starts_with("log.")) found.push_back(entry.path());
    }
    return found;
  }

  // Lines of results.csv, its header too.
  std::vector<std::string> results() const {
    const std::string text = read_file(folder_ / "results/e2e/results.csv");
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return lines;
  }

 private:
  static std::filesystem::path peaks() {
    static const TemporaryFolder of_all_tests;
    return of_all_tests / "cpu-peaks.json";
  }

  TemporaryFolder folder_;
};

inline const std::vector<std::string> kSubmit{"--sweep", "sweep.yaml", "--RUN"};

// Whether a run has begun its steps.
inline bool training(const EndToEnd& e2e) {
  return std::ranges::any_of(e2e.logs(), [](const auto& log) {
    return read_file_if_exists(log).value_or("").find("\"t\":\"step\"") != std::string::npos;
  });
}

// The processes of all attempts that are alive.
inline std::vector<ProcessRef> living(const EndToEnd& e2e) {
  std::vector<ProcessRef> alive;
  for (const auto& [run, state] : e2e.states()) {
    for (const auto& attempt : state.attempts) {
      const auto process = cluster::local_process(e2e.project() / run, attempt.attempt);
      if (process && liveness(*process) == Liveness::alive) alive.push_back(*process);
    }
  }
  return alive;
}

inline std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++count;
  return count;
}

}  // namespace tessera::test
