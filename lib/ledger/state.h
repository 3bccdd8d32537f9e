// SPDX-License-Identifier: Apache-2.0
// What is remembered between commands for this user: where each project lives, the last project
// used, measured peaks.
//
// Kept in $TESSERA_STATE_DIR, else $XDG_STATE_HOME/tessera, else ~/.local/state/tessera.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace tessera::ledger {

std::filesystem::path state_dir();

// Error(io) if the state directory cannot be written. Makes it.
void require_writable_state();

// The project that a command without PROJECT means.
std::optional<std::string> last_project();

// The remembered workspace of a project, if any.
std::optional<std::filesystem::path> remembered_workspace(const std::string& project);

// Every remembered project and its workspace, by name.
std::map<std::string, std::filesystem::path> remembered_projects();

// Remembers both. Error(io) if the state directory cannot be written.
void remember_project(const std::string& project, const std::filesystem::path& workspace);

// Where a project's runs are, as an absolute path: `asked` (--workspace), else $TESSERA_WORKSPACE,
// else the remembered one, else `of_cluster` (the cluster file's), else ./runs. An explicit one
// that contradicts the remembered one is Error(conflict) that names both, unless the remembered one
// no longer exists: else a sweep would be run twice from two folders.
std::filesystem::path resolve_workspace(const std::string& project, const std::string& asked,
                                        const std::string& of_cluster = {});

// The same for a command that only reads: `asked` may be a copy of a project that lives elsewhere.
std::filesystem::path workspace_to_read(const std::string& project, const std::string& asked);

// Peak of this machine's CPU in TFLOP/s for (CPU model, threads, BLAS), measured once.
struct CpuPeakKey {
  std::string cpu;
  int threads = 1;
  std::string blas;
};
std::optional<double> cached_cpu_peak(const CpuPeakKey& key);
void cache_cpu_peak(const CpuPeakKey& key, double tflops);
// False if it was not there.
bool forget_cpu_peak(const CpuPeakKey& key);

}  // namespace tessera::ledger
