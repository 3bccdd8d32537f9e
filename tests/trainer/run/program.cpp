// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/run/program.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/base/crc32.h"
#include "lib/base/file.h"

namespace tessera::trainer::test {

std::filesystem::path trainer_path() {
  const char* folder = std::getenv("TESSERA_BIN");
  return std::filesystem::path(folder != nullptr ? folder : "build/release/bin") / "trainer";
}

namespace {

[[noreturn]] void become_trainer(const ProgramOptions& options, const std::filesystem::path& in,
                                 const std::filesystem::path& out,
                                 const std::filesystem::path& err) {
  const int files[] = {::open(in.c_str(), O_RDONLY), ::open(out.c_str(), O_WRONLY | O_CREAT, 0666),
                       ::open(err.c_str(), O_WRONLY | O_CREAT, 0666)};
  for (int stream = 0; stream < 3; ++stream) {
    if (files[stream] < 0) ::_exit(126);
    ::dup2(files[stream], stream);
  }
  for (const std::string& variable : options.environment) {
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  std::vector<std::string> words{options.program.empty() ? trainer_path().string()
                                                         : options.program.string()};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

StartedTrainer::StartedTrainer(const ProgramOptions& options) {
  write_file_atomically(folder_ / "in", options.input);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) become_trainer(options, folder_ / "in", folder_ / "out", folder_ / "err");
}

pid_t StartedTrainer::rank(int rank) const {
  const std::string wanted = "TESSERA_RANK=" + std::to_string(rank);
  for (int i = 0; i < 2000; ++i) {
    std::ifstream children("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) +
                           "/children");
    for (pid_t child = 0; children >> child;) {
      std::ifstream environment("/proc/" + std::to_string(child) + "/environ");
      for (std::string variable; std::getline(environment, variable, '\0');) {
        if (variable == wanted) return child;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  FAIL("no such rank");
  return -1;
}

ProgramResult StartedTrainer::wait() {
  int status = 0;
  REQUIRE(::waitpid(pid_, &status, 0) == pid_);
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_file(folder_ / "out"),
          .err = read_file(folder_ / "err")};
}

ProgramResult run_trainer(const ProgramOptions& options) {
  StartedTrainer trainer(options);
  while (options.signal != 0) {
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(trainer.pid()), &ended, WEXITED | WNOHANG | WNOWAIT) ==
            0 &&
        ended.si_pid != 0)
      break;
    if (options.when()) {
      ::kill(trainer.pid(), options.signal);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return trainer.wait();
}

sweep::RunSpec small_spec(const std::filesystem::path& run_dir) {
  sweep::RunSpec spec;
  spec.project = "mini";
  spec.id = "0123456789ab";
  spec.run = "mini--tiny-s16-1g-0123456789ab";
  spec.label = "tiny";
  spec.user = "kim";
  spec.point = {.model = {.d_model = 32,
                          .n_layers = 2,
                          .n_heads = 2,
                          .n_kv_heads = 2,
                          .head_dim = 16,
                          .ffn = 64,
                          .vocab = 150},
                .lr = 1e-3,
                .seq_len = 16,
                .global_batch = 5,
                .microbatch_size = 2,
                .precision = Precision::fp32,
                .sharding_strategy = Sharding::full_shard,
                .threads = 1,
                .steps = 6,
                .warmup = 2};
  spec.peak = sweep::Peak{.tflops = 0.1, .source = "measured: elsewhere"};
  spec.run_dir = run_dir.string();
  return spec;
}

ProgramResult train_spec(const sweep::RunSpec& spec) {
  return run_trainer({.arguments = {"--spec", "-"}, .input = run_spec_json(spec)});
}

std::filesystem::path log_in(const std::filesystem::path& run_dir) {
  std::vector<std::filesystem::path> logs;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir)) {
    if (entry.path().filename().string().starts_with("log.")) logs.push_back(entry.path());
  }
  REQUIRE(logs.size() == 1);
  return logs.front();
}

std::vector<nlohmann::ordered_json> records_of(const std::string& log) {
  std::vector<nlohmann::ordered_json> records;
  std::size_t begin = 0;
  while (begin < log.size()) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    CHECK(seal_holds(line));
    records.push_back(nlohmann::ordered_json::parse(line));
  }
  return records;
}

nlohmann::ordered_json row_of(const std::vector<nlohmann::ordered_json>& records) {
  const nlohmann::ordered_json& footer = records.back();
  CHECK(footer.at("t") == "footer");
  const auto count = footer.at("rows").get<std::size_t>();
  nlohmann::ordered_json row;
  for (std::size_t part = 1; part <= count; ++part) {
    const nlohmann::ordered_json& record = records.at(records.size() - 2 - count + part);
    CHECK(record.at("t") == "row");
    CHECK(record.at("part") == part);
    row.update(record.at("row"));
  }
  return row;
}

}  // namespace tessera::trainer::test
