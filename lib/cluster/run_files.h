// SPDX-License-Identifier: Apache-2.0
// Files of an attempt beside its specification and log (docs/formats.md, "Names and files").
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace tessera::cluster {

// What the attempt printed for people, in the order in which it is to be read: script.<attempt>.out
// of the job script, then out.<attempt>.<restart>.<rank> by restart and rank. May be empty.
std::vector<std::filesystem::path> output_files(const std::filesystem::path& run_dir, int attempt);

// What the job script noted in exit.<attempt>.<restart> of the last restart: 0 to 255, 128 + n: by
// signal n. Nothing if it noted none.
std::optional<int> noted_exit_code(const std::filesystem::path& run_dir, int attempt);

}  // namespace tessera::cluster
