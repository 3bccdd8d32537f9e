// SPDX-License-Identifier: Apache-2.0
// What the folder of a run holds of its attempts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/point/run_spec.h"

namespace tessera::jobs {

// Numbers of the attempts that left a specification, a process file or rank 0's log, in order.
// Error(io) if the folder is there and cannot be read.
std::vector<int> attempts_in(const std::filesystem::path& run_dir);

std::filesystem::path spec_file(const std::filesystem::path& run_dir, int attempt);

// Nothing if there is none or it cannot be understood.
std::optional<sweep::RunSpec> read_spec(const std::filesystem::path& run_dir, int attempt);

// The run of the same point's first repeat: the name without "-rJ".
std::string first_repeat(const std::string& run);

}  // namespace tessera::jobs
