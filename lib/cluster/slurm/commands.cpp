// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/commands.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/cluster/slurm/text.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

namespace {

// What would change what the commands do or print, or leak into a job. With --export=NIL sbatch
// still hands on each SLURM_*.
std::vector<std::string> slurm_environment() {
  constexpr std::array<std::string_view, 9> kFamilies = {"SBATCH_",  "SQUEUE_",   "SACCT_",
                                                         "SCANCEL_", "SCONTROL_", "SALLOC_",
                                                         "SINFO_",   "SACCTMGR_", "SRUN_"};
  std::vector<std::string> kept;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_theirs = std::ranges::any_of(
        kFamilies, [&](std::string_view family) { return name.starts_with(family); });
    const bool is_slurms = name.starts_with("SLURM") && name != "SLURM_CONF" && name != "SLURM_JWT";
    const bool is_set_below = name == "TZ" || name == "LC_ALL" || name == "LANGUAGE";
    if (!is_theirs && !is_slurms && !is_set_below) kept.emplace_back(text);
  }
  kept.insert(kept.end(), {"TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=%s"});
  return kept;
}

}  // namespace

CommandResult run_slurm(const std::vector<std::string>& words, double limit_s,
                        const std::string& input) {
  return run_command(words, {.environment = slurm_environment(),
                             .input = input,
                             .limit_s = limit_s,
                             .dies_with_caller = true});
}

void throw_unreachable(const std::string& command, const CommandResult& result) {
  throw Error(ExitCode::unreachable, command,
              result.exit_code == kNoProgram ? "it is not there or cannot be started"
                                             : slurm_complaint(result));
}

std::string uncommon_folder(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const std::string folder(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (!folder.starts_with('/') || ::access((fs::path(folder) / program).c_str(), X_OK) != 0)
      continue;
    return folder == "/usr/local/bin" || folder == "/usr/bin" || folder == "/bin" ? std::string()
                                                                                  : folder;
  }
  return {};
}

}  // namespace tessera::cluster
