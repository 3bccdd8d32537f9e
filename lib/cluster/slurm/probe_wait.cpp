// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/probe_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/cluster/slurm/probe.h"

namespace tessera::cluster {

namespace {

JobState state_if_known(Scheduler& scheduler, const OpenJob& open) {
  try {
    return scheduler.query({&open, 1}).front();
  } catch (const Error&) {
    return {};
  }
}

std::string waiting_text(const JobState& state) {
  switch (state.phase) {
    case JobState::Phase::pending:
      return fmt::format("the job still waits: {}", state.reason);
    case JobState::Phase::running:
      return fmt::format("the job runs: {}", state.reason);
    case JobState::Phase::ended:
    case JobState::Phase::absent:
    case JobState::Phase::elsewhere:
      break;
  }
  return "";
}

[[noreturn]] void throw_no_report(const NodeQuestion& question, const JobState& state) {
  const std::string folder = question.folder.string();
  if (state.exit_code == kNoFolderOnNode)
    throw Error(ExitCode::io, folder, "is not there on the node", "a workspace that both see");
  if (state.exit_code == kNoModulesOnNode)
    throw Error(ExitCode::refused, "trainer.modules", "a node cannot load them",
                "modules that nodes have: module avail");
  if (state.exit_code == kNoWritingOnNode)
    throw Error(ExitCode::io, folder, "cannot be written on the node");
  throw Error(ExitCode::io, folder,
              fmt::format("the job ended and left nothing there{}{}",
                          state.end_reason.empty() ? "" : ": ", state.end_reason),
              "a workspace that both see");
}

}  // namespace

NodeReport wait_for_node_report(const NodeQuestion& question, const OpenJob& open,
                                const std::string& token, Scheduler& scheduler) {
  constexpr double kLongestPause_s = 10;
  constexpr double kSlowFolder_s = 10;  // until what a node wrote is seen here
  constexpr auto kLook = std::chrono::milliseconds(100);
  double pause_s = 0.5;
  double next_s = monotonic_seconds() + pause_s;
  std::optional<double> ended_s;
  JobState state;
  while (true) {
    if (auto report = read_node_report(question.folder, token)) {
      report->queue_s = state_if_known(scheduler, open).queue_s;
      return *std::move(report);
    }
    if (!question.goes_on(state))
      throw Error(ExitCode::interrupted, open.name, "given up", waiting_text(state));
    const double now_s = monotonic_seconds();
    // How it ended, the accounts know later than the queue.
    if (ended_s && now_s - *ended_s > kSlowFolder_s)
      throw_no_report(question, state_if_known(scheduler, open));
    if (!ended_s && now_s >= next_s) {
      state = scheduler.query({&open, 1}).front();
      if (state.phase == JobState::Phase::ended) ended_s = now_s;
      if (state.never_starts)
        throw Error(ExitCode::refused, open.name, fmt::format("never starts: {}", state.reason));
      pause_s = std::min(2 * pause_s, kLongestPause_s);
      next_s = now_s + pause_s;
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace tessera::cluster
