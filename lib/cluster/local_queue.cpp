#include "lib/cluster/local_queue.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <thread>

namespace tessera::cluster {

namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(20);

struct Running {
  std::string run;
  int attempt = 1;
  std::filesystem::path run_dir;
  ProcessRef process;
  bool child = false;  // of this process, so that its exit code can be had
};

// Whether it has ended, and with which exit code if that can be known.
bool has_ended(const Running& running, std::optional<int>& exit_code) {
  if (!running.child) return liveness(running.process) != Liveness::alive;
  int status = 0;
  if (::waitpid(running.process.pid, &status, WNOHANG) != running.process.pid) return false;
  exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

}  // namespace

QueueProgress run_local(const LocalQueue& queue, const QueueEvents& events,
                        const std::atomic<bool>& interrupted) {
  QueueProgress progress;
  progress.total = static_cast<int>(queue.to_start.size() + queue.living.size());
  std::vector<Running> running;
  for (const AdoptedRun& adopted : queue.living) {
    running.push_back({.run = adopted.run,
                       .attempt = adopted.attempt,
                       .run_dir = adopted.run_dir,
                       .process = adopted.process,
                       .child = false});
  }
  auto next = queue.to_start.begin();
  const auto company = [&](std::size_t remaining) {
    const int now = static_cast<int>(running.size());
    const int most = std::min<int>(queue.max_parallel - 1, now + static_cast<int>(remaining));
    return Company{.running = now, .shared_with = std::max(now, most)};
  };
  bool told_to_end = false;
  std::exception_ptr fault;

  while (true) {
    for (auto it = running.begin(); it != running.end();) {
      std::optional<int> exit_code;
      if (!has_ended(*it, exit_code)) {
        ++it;
        continue;
      }
      const Outcome outcome = outcome_of_attempt(it->run_dir, it->attempt, exit_code);
      ++(outcome.status == runlog::Status::ok ? progress.ok : progress.failed);
      const Running ended = *it;
      it = running.erase(it);
      try {
        events.ended(ended.run, ended.attempt, outcome);
      } catch (...) {
        if (!fault) fault = std::current_exception();
      }
    }
    const bool starting = !interrupted && !fault;
    while (starting && next != queue.to_start.end() &&
           static_cast<int>(running.size()) < queue.max_parallel) {
      LocalRun run = *next;
      try {
        if (events.prepare)
          events.prepare(run, company(static_cast<std::size_t>(queue.to_start.end() - next) - 1));
        if (interrupted) break;
        ++next;
        events.intent(run);
        const ProcessRef process = start_local(
            run.start, [&](const ProcessRef& started) { events.accepted(run, started); });
        running.push_back({.run = run.run,
                           .attempt = run.attempt,
                           .run_dir = run.start.run_dir,
                           .process = process,
                           .child = true});
      } catch (...) {
        fault = std::current_exception();
        break;
      }
    }
    if (interrupted && !told_to_end) {
      told_to_end = true;
      for (const Running& each : running) signal_local(each.process, SIGTERM);
    }
    progress.running.clear();
    for (const Running& each : running) progress.running.push_back(each.run);
    events.progress(progress);
    const bool no_more = next == queue.to_start.end() || interrupted || fault;
    if (running.empty() && no_more) break;
    std::this_thread::sleep_for(kPollInterval);
  }
  if (fault) std::rethrow_exception(fault);
  return progress;
}

}  // namespace tessera::cluster
