// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/local_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/spawn.h"
#include "trainer/launch/rendezvous.h"
#include "trainer/launch/sockets.h"
#include "trainer/launch/wire.h"

namespace tessera::trainer {

namespace {

constexpr int kNoProgram = 127;
constexpr int kSignalled = 128;

// Blocks SIGCHLD, so that sigtimedwait can take it. Ranks get the signal mask of before.
class BlockedChildSignal {
 public:
  BlockedChildSignal() {
    // If SIGCHLD is ignored, the kernel keeps no status of a child.
    struct sigaction action{};
    action.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &action, &action_before_);
    ::sigemptyset(&child_);
    ::sigaddset(&child_, SIGCHLD);
    ::pthread_sigmask(SIG_BLOCK, &child_, &mask_before_);
  }
  BlockedChildSignal(const BlockedChildSignal&) = delete;
  BlockedChildSignal& operator=(const BlockedChildSignal&) = delete;
  ~BlockedChildSignal() {
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    ::sigaction(SIGCHLD, &action_before_, nullptr);
  }

  const sigset_t& mask_before() const { return mask_before_; }

  // Waits until a child ends, a signal is handled, or a moment has passed.
  void wait() const {
    constexpr timespec kMoment{.tv_sec = 0, .tv_nsec = 50'000'000};
    ::sigtimedwait(&child_, nullptr, &kMoment);
  }

 private:
  sigset_t child_{};
  sigset_t mask_before_{};
  struct sigaction action_before_{};
};

struct Rank {
  pid_t pid = 0;
  std::optional<int> code;  // once it has ended
};

struct Start {
  const char* program;
  char* const* arguments;
  char* const* variables;
  int listener;  // inherited by the rank; -1: none
  pid_t parent;
  const sigset_t* mask;
};

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void become_rank(const Start& start) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != start.parent) ::_exit(kSignalled + SIGKILL);  // the parent has died already
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, start.mask, nullptr);
  if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0)
    ::dup2(nothing, STDIN_FILENO);
  if (start.listener >= 0) ::fcntl(start.listener, F_SETFD, 0);
  ::execvpe(start.program, start.arguments, start.variables);
  constexpr char kWords[] = "trainer: a rank's program cannot be started\n";
  [[maybe_unused]] const auto wrote = ::write(STDERR_FILENO, kWords, sizeof kWords - 1);
  ::_exit(kNoProgram);
}

class LocalRanks {
 public:
  LocalRanks(int ranks, const std::vector<std::string>& command) {
    try {
      start(ranks, command);
    } catch (...) {
      end();
      throw;
    }
  }
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;
  ~LocalRanks() { end(); }

  int wait(const std::atomic<int>& stop, const Patience& patience) {
    bool handed_on = false;
    std::chrono::steady_clock::time_point next;
    int signal = SIGTERM;
    while (collect()) {
      const int asked = stop.load();
      if (asked != 0 && !handed_on) {
        send(asked);
        handed_on = true;
      }
      const auto now = std::chrono::steady_clock::now();
      if (failed_ && !ending_) {
        ending_ = true;
        next = now + patience.to_speak;
      } else if (failed_ && now >= next) {
        send(signal);
        signalled_ = true;
        signal = SIGKILL;
        next = now + patience.to_end;
      }
      child_signal_.wait();
    }
    const int first = ranks_.front().code.value_or(0);
    const int follows = static_cast<int>(ExitCode::comm_error);
    if (first != 0 && first != follows && !was_ended_) return first;
    if (failed_otherwise_) return *failed_otherwise_;
    return failed_.value_or(first);
  }

 private:
  void start(int count, const std::vector<std::string>& command) {
    const FileDescriptor listener = listen_on({.host = "127.0.0.1"});
    const std::string address = to_text({.host = "127.0.0.1", .port = port_of(listener)});
    const std::string token = wire::to_hex(wire::random_token());
    std::vector<std::string> arguments = command;
    const auto argument_pointers = exec_pointers(arguments);
    const pid_t self = ::getpid();
    for (int rank = 0; rank < count; ++rank) {
      std::map<std::string, std::string> changes{{"TESSERA_RANK", std::to_string(rank)},
                                                 {"TESSERA_RANKS", std::to_string(count)},
                                                 {"TESSERA_LOCAL_RANK", std::to_string(rank)},
                                                 {"TESSERA_NODE", "0"},
                                                 {"TESSERA_NODES", "1"},
                                                 {kStoreVariable, address},
                                                 {kStoreTokenVariable, token}};
      if (rank == 0) changes[kStoreSocketVariable] = std::to_string(listener.get());
      std::vector<std::string> variables = environment_with(changes, {kStoreSocketVariable});
      const auto variable_pointers = exec_pointers(variables);
      const pid_t child = ::fork();
      if (child < 0)
        throw Error(ExitCode::failed, fmt::format("rank {}", rank),
                    fmt::format("cannot be started: {}", std::generic_category().message(errno)));
      if (child == 0)
        become_rank({.program = argument_pointers.front(),
                     .arguments = argument_pointers.data(),
                     .variables = variable_pointers.data(),
                     .listener = rank == 0 ? listener.get() : -1,
                     .parent = self,
                     .mask = &child_signal_.mask_before()});
      ranks_.push_back({.pid = child});
    }
    // From here on only rank 0 holds the socket: when it ends, nobody can connect any more.
  }

  void send(int signal) const {
    for (const Rank& rank : ranks_) {
      if (!rank.code) ::kill(rank.pid, signal);
    }
  }

  // Takes the status of the ranks that have ended. Returns whether any is left.
  bool collect() {
    bool left = false;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      if (rank.code) continue;
      int status = 0;
      const pid_t got = ::waitpid(rank.pid, &status, WNOHANG);
      if (got == 0 || (got < 0 && errno == EINTR)) {
        left = true;
        continue;
      }
      // Below 0: someone else took its status.
      rank.code = got < 0 ? kNoProgram : exit_code_in(status);
      if (*rank.code != 0) note_failure(i, got < 0 ? 0 : status, *rank.code);
    }
    return left;
  }

  void note_failure(std::size_t rank, int status, int code) {
    // A rank that this process ended is not the cause.
    if (signalled_) {
      was_ended_ = was_ended_ || rank == 0;
      return;
    }
    // A communication error is a consequence of another rank's end, which may be noticed later.
    const bool otherwise = code != static_cast<int>(ExitCode::comm_error);
    if (!failed_ || (otherwise && !failed_otherwise_)) {
      const std::string how = WIFSIGNALED(status)
                                  ? fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                                                ::strsignal(WTERMSIG(status)))
                                  : fmt::format("ended with exit code {}", code);
      std::fputs(
          fmt::format("trainer: rank {} {}{}\n", rank, how,
                      ranks_.size() > 1 && !failed_ ? "; the others are given time to end" : "")
              .c_str(),
          stderr);
    }
    if (!failed_) failed_ = code;
    if (otherwise && !failed_otherwise_) failed_otherwise_ = code;
  }

  // Kills and collects all ranks, so that none is left behind whatever happened.
  void end() {
    send(SIGKILL);
    for (Rank& rank : ranks_) {
      while (!rank.code && ::waitpid(rank.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      rank.code = rank.code.value_or(kSignalled + SIGKILL);
    }
  }

  const BlockedChildSignal child_signal_;
  std::vector<Rank> ranks_;
  std::optional<int> failed_;            // code of the first rank that failed
  std::optional<int> failed_otherwise_;  // the first failure other than a communication error
  bool ending_ = false;
  bool signalled_ = false;  // this process sent the rest SIGTERM
  bool was_ended_ = false;  // rank 0 ended by that SIGTERM
};

}  // namespace

int run_local_ranks(int ranks, const std::vector<std::string>& command,
                    const std::atomic<int>& stop, const Patience& patience) {
  if (ranks < 1 || command.empty())
    throw Error(ExitCode::internal, "run_local_ranks", fmt::format("{} ranks", ranks));
  return LocalRanks(ranks, command).wait(stop, patience);
}

}  // namespace tessera::trainer
