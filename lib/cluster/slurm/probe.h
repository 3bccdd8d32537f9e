// SPDX-License-Identifier: Apache-2.0
// The batch script that looks at a node, and the wait for what it leaves (Scheduler::probe).
//
// In the question's folder: `question` from this machine; `node`, `seen` (what the node read of the
// question), `devices`, `version` and `capabilities` with their .err and .exit, and last `done`.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lib/base/command.h"
#include "lib/cluster/scheduler.h"
#include "lib/cluster/slurm/job.h"

namespace tessera::cluster {

inline constexpr int kNoModulesOnNode = 126;  // as of every script
inline constexpr int kNoFolderOnNode = 41;    // exit codes of the script
inline constexpr int kNoWritingOnNode = 42;

// `job` has no runs.
std::string probe_script(const Cluster& cluster, const Job& job,
                         const std::filesystem::path& folder, const SlurmScriptOptions& options);

// Nothing as long as the answer is not whole. Error(io) if the node read another question: its
// folder of that name is not this machine's.
std::optional<NodeReport> read_node_report(const std::filesystem::path& folder,
                                           const std::string& question);

// Waits for the report in the folder of a question. `open`: the job that looks, which has been
// handed over. The folder is looked at often, the controller asked seldom. Error(interrupted) once
// `question.goes_on` says no, (refused) if the job will never start, (io) if it ended and left no
// report, (unreachable) as of query(); the job may be in the queue then.
NodeReport wait_for_node_report(const NodeQuestion& question, const OpenJob& open,
                                const std::string& token, Scheduler& scheduler);

}  // namespace tessera::cluster
