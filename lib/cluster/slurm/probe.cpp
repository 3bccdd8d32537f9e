// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/cluster/node_probe.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

namespace {

std::string content(const fs::path& path) {
  return read_file_if_exists(path).value_or("");
}

CommandResult answer(const fs::path& folder, const std::string& name) {
  constexpr int kNeverBegun = 127;
  const auto code = parse_integer(first_line(content(folder / (name + ".exit"))));
  return {.exit_code = static_cast<int>(code.value_or(kNeverBegun)),
          .out = content(folder / name),
          .err = content(folder / (name + ".err"))};
}

}  // namespace

std::string probe_script(const Cluster& cluster, const Job& job, const fs::path& folder,
                         const SlurmScriptOptions& options) {
  const SlurmJob slurm(cluster, job, options);
  std::string text = "#!/bin/bash\n# Asks a node what a run would find there: submit doctor.\n";
  text += slurm.head("/dev/null", {});
  text += "\n" + slurm.environment();
  if (!cluster.trainer.modules.empty())
    text += fmt::format("[ -z \"$no_modules\" ] || exit {}\n", kNoModulesOnNode);
  text += fmt::format("trainer={}\n", shell_word(slurm.trainer()));
  text += fmt::format("cd {} || exit {}\n", shell_word(folder.string()), kNoFolderOnNode);
  text += fmt::format("echo \"${{SLURMD_NODENAME:-$(hostname)}}\" >node || exit {}\n",
                      kNoWritingOnNode);
  text += R"sh(cat question >seen
if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name --format=csv,noheader >devices; fi

# ask NAME: what `trainer --NAME` prints, started as runs are.
ask() {
)sh";
  std::string command = "  ";
  for (const std::string& word : slurm.srun()) command += word + " ";
  command += "--output=\"$1\" --error=\"$1.err\" \"$trainer\" \"--$1\"\n  echo $? >\"$1.exit\"\n";
  if (cluster.trainer.image.empty()) {
    text += R"sh(  if [ ! -x "$trainer" ]; then
    echo "$trainer is not there or not executable" >"$1.err"
    echo 127 >"$1.exit"
    return
  fi
)sh";
  }
  text += command + "}\nask version\nask capabilities\n: >done\n";
  return text;
}

std::optional<NodeReport> read_node_report(const fs::path& folder, const std::string& question) {
  if (!fs::exists(folder / "done")) return std::nullopt;
  NodeReport report;
  report.node = first_line(content(folder / "node"));
  if (content(folder / "seen") != question) {
    throw Error(
        ExitCode::io, folder.string(),
        fmt::format("{} has a folder of this name, but it is not this machine's", report.node),
        "a workspace that both see");
  }
  report.devices = lines_of(content(folder / "devices"));
  take_trainer_answers(answer(folder, "version"), answer(folder, "capabilities"), report);
  return report;
}

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
