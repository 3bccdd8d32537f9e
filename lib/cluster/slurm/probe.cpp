// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/probe.h"

#include <fmt/format.h>

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

}  // namespace tessera::cluster
