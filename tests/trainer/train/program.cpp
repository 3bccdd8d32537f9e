#include "tests/trainer/train/program.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "lib/base/crc32.h"
#include "lib/base/file.h"
#include "tests/temporary.h"

namespace tessera::trainer::test {

namespace {

std::string trainer_path() {
  const char* folder = std::getenv("TESSERA_BIN");
  return std::string(folder != nullptr ? folder : "build/release/bin") + "/trainer";
}

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
  std::vector<std::string> words{trainer_path()};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

}  // namespace

ProgramResult run_trainer(const ProgramOptions& options) {
  const tessera::test::TemporaryFolder folder;
  write_file_atomically(folder / "in", options.input);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) become_trainer(options, folder / "in", folder / "out", folder / "err");

  int status = 0;
  bool sent = options.signal == 0;
  while (!sent) {
    if (::waitpid(child, &status, WNOHANG) == child) break;
    if (options.when()) {
      ::kill(child, options.signal);
      sent = true;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  if (sent) ::waitpid(child, &status, 0);
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_file(folder / "out"),
          .err = read_file(folder / "err")};
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

}  // namespace tessera::trainer::test
