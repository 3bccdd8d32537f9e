// SPDX-License-Identifier: Apache-2.0
// How Slurm's commands are run: without the SBATCH_*, SQUEUE_*, ... of the environment and without
// the SLURM_* of an enclosing allocation (SLURM_CONF and SLURM_JWT stay), in English, with times in
// seconds since 1970.
#pragma once

#include <string>
#include <vector>

#include "lib/base/command.h"

namespace tessera::cluster {

// A command that has not answered after `limit_s` is killed: what it did is not known.
CommandResult run_slurm(const std::vector<std::string>& words, double limit_s,
                        const std::string& input = {});

// Error(unreachable) with what the command complained of.
[[noreturn]] void throw_unreachable(const std::string& command, const CommandResult& result);

// The folder of a program of PATH where it is none that everybody has; else empty.
std::string uncommon_folder(const std::string& program);

}  // namespace tessera::cluster
