// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/launch/processes.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace tessera::trainer::test {

std::string launch_rank_path() {
  const char* folder = std::getenv("TESSERA_TEST_BIN");
  return std::string(folder != nullptr ? folder : "build/release/tests") + "/launch_rank";
}

Process::Process(std::vector<std::string> command,
                 const std::map<std::string, std::string>& variables, bool err, int open_files) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  out_ = FileDescriptor(ends[0]);
  const FileDescriptor write(ends[1]);
  // Built before fork: other threads of the test may hold the allocator's lock.
  std::vector<std::string> environment;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) environment.push_back(text);
  }
  for (const auto& [name, value] : variables) {
    std::string& text = environment.emplace_back(name);
    text += "=";
    text += value;
  }
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> settings;
  for (std::string& text : environment) settings.push_back(text.data());
  settings.push_back(nullptr);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    ::dup2(write.get(), STDOUT_FILENO);
    if (err) ::dup2(write.get(), STDERR_FILENO);
    if (open_files > 0) {
      const rlimit limit{.rlim_cur = static_cast<rlim_t>(open_files),
                         .rlim_max = static_cast<rlim_t>(open_files)};
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    ::execve(arguments[0], arguments.data(), settings.data());
    ::_exit(127);
  }
}

Process::~Process() {
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  wait();
}

bool Process::fill() {
  std::array<char, 4096> chunk{};
  while (true) {
    pollfd readable{.fd = out_.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&readable, 1, 60'000);
    if (ready < 0 && errno == EINTR) continue;
    REQUIRE(ready == 1);  // else it hangs
    const ssize_t got = ::read(out_.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    text_.append(chunk.data(), static_cast<std::size_t>(got));
    return true;
  }
}

std::string Process::line() {
  while (text_.find('\n') == std::string::npos) {
    if (!fill()) return {};
  }
  const std::size_t end = text_.find('\n');
  const std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

std::string Process::rest() {
  while (fill()) {
  }
  return text_;
}

void Process::signal(int number) const {
  ::kill(pid_, number);
}

int Process::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  ended_ = true;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::map<std::string, std::string> rank_variables(int rank, int ranks) {
  return {{"TESSERA_RANK", std::to_string(rank)},
          {"TESSERA_RANKS", std::to_string(ranks)},
          {"TESSERA_LOCAL_RANK", std::to_string(rank)},
          {"TESSERA_NODE", "0"},
          {"TESSERA_NODES", "1"},
          {"TESSERA_JOB", "job"}};
}

}  // namespace tessera::trainer::test
