// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/detach.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/spawn.h"

namespace tessera::apps {

namespace fs = std::filesystem;

namespace {

std::atomic<pid_t> g_worker{0};
static_assert(std::atomic<pid_t>::is_always_lock_free);

void handle(int signal_number, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal_number, &action, nullptr);
}

void hand_on(int signal_number) {
  const int kept = errno;
  if (const pid_t worker = g_worker; worker > 0) ::kill(worker, signal_number);
  errno = kept;
}

// Everything until the other end is closed.
std::string read_word(const FileDescriptor& from) {
  std::string word;
  std::array<char, 512> block{};
  while (true) {
    const ssize_t got = ::read(from.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return word;
    word.append(block.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::optional<int> Detachment::begin(const std::string& project) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("pipe", "cannot be made", errno);
  FileDescriptor reads(ends[0]);
  FileDescriptor writes(ends[1]);
  std::fflush(nullptr);
  const pid_t worker = ::fork();
  if (worker < 0) throw_errno("fork", "no process can be made", errno);
  if (worker == 0) {
    word_ = std::move(writes);
    return std::nullopt;
  }
  g_worker = worker;
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) handle(signal_number, hand_on);
  writes = FileDescriptor();
  const std::string log = read_word(reads);
  if (log.empty()) return wait_for_exit(worker);
  fmt::print(
      "It goes on in the background: process {}\nIts output: {}\nTo end it: submit cancel {}\n",
      worker, log, project);
  return 0;
}

void Detachment::hook(submit::SubmitEvents& events, const fs::path& project_dir) {
  events.selected = [this, project_dir, show = std::move(events.selected)](
                        const std::vector<submit::Choice>& choices, int adopted) {
    if (show) show(choices, adopted);
    const bool work = adopted > 0 || std::ranges::any_of(choices, [](const auto& choice) {
                        return choice.verdict == submit::Verdict::start;
                      });
    if (work && word_) go(project_dir);
  };
}

void Detachment::go(const fs::path& project_dir) {
  std::string utc = utc_now();
  std::erase_if(utc, [](char c) { return c == '-' || c == ':'; });
  const fs::path path = project_dir / ".tessera" / fmt::format("submit.{}.log", utc);
  const FileDescriptor log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log) throw_errno(path, "cannot be written", errno);
  const FileDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) throw_errno("/dev/null", "cannot be read", errno);
  std::fflush(nullptr);
  if (::setsid() < 0) throw_errno("setsid", "no session of its own", errno);
  // Not ignored: what it starts would ignore it too.
  handle(SIGHUP, [](int) {});
  const bool moved = ::dup2(nothing.get(), STDIN_FILENO) >= 0 &&
                     ::dup2(log.get(), STDOUT_FILENO) >= 0 && ::dup2(log.get(), STDERR_FILENO) >= 0;
  if (!moved) throw_errno(path, "cannot be written", errno);
  fmt::print("{} submit of {}, process {}\n", utc_now(), project_dir.filename().string(),
             ::getpid());
  std::fflush(stdout);
  // The caller may be gone.
  void (*const before)(int) = std::signal(SIGPIPE, SIG_IGN);
  const std::string word = path.string();
  while (::write(word_.get(), word.data(), word.size()) < 0 && errno == EINTR) continue;
  std::signal(SIGPIPE, before);
  word_ = FileDescriptor();
}

}  // namespace tessera::apps
