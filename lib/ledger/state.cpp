// SPDX-License-Identifier: Apache-2.0
#include "lib/ledger/state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"

namespace tessera::ledger {

namespace fs = std::filesystem;

namespace {

// A file that cannot be understood is a state that was lost, not a reason to stop.
nlohmann::json read_state(const char* name) {
  try {
    if (const auto text = read_file_if_exists(state_dir() / name)) {
      nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
      if (json.is_object()) return json;
    }
  } catch (const Error&) {
    return nlohmann::json::object();
  }
  return nlohmann::json::object();
}

void write_state(const char* name, const nlohmann::json& json) {
  make_directories(state_dir());
  write_file_atomically(state_dir() / name, json.dump(2) + "\n");
}

std::string peak_key(const CpuPeakKey& key) {
  return fmt::format("{} | {} threads | {}", key.cpu, key.threads, key.blas);
}

}  // namespace

fs::path state_dir() {
  if (const std::string dir = environment_variable("TESSERA_STATE_DIR"); !dir.empty())
    return fs::absolute(dir);
  if (const std::string dir = environment_variable("XDG_STATE_HOME"); !dir.empty())
    return fs::path(dir) / "tessera";
  if (const std::string home = environment_variable("HOME"); !home.empty())
    return fs::path(home) / ".local/state/tessera";
  throw Error(ExitCode::io, "TESSERA_STATE_DIR", "neither it nor HOME is set", "set one of them");
}

void require_writable_state() {
  const fs::path dir = state_dir();
  make_directories(dir);
  if (::access(dir.c_str(), W_OK | X_OK) != 0) throw_errno(dir, "cannot be written", errno);
}

std::optional<std::string> last_project() {
  const nlohmann::json json = read_state("projects.json");
  const auto last = json.find("last");
  return last != json.end() && last->is_string() ? std::optional(last->get<std::string>())
                                                 : std::nullopt;
}

std::optional<fs::path> remembered_workspace(const std::string& project) {
  const nlohmann::json json = read_state("projects.json");
  const auto projects = json.find("projects");
  if (projects == json.end() || !projects->is_object()) return std::nullopt;
  const auto found = projects->find(project);
  return found != projects->end() && found->is_string()
             ? std::optional<fs::path>(found->get<std::string>())
             : std::nullopt;
}

std::map<std::string, fs::path> remembered_projects() {
  const nlohmann::json json = read_state("projects.json");
  std::map<std::string, fs::path> remembered;
  const auto projects = json.find("projects");
  if (projects == json.end() || !projects->is_object()) return remembered;
  for (const auto& [name, workspace] : projects->items()) {
    if (workspace.is_string()) remembered[name] = workspace.get<std::string>();
  }
  return remembered;
}

void remember_project(const std::string& project, const fs::path& workspace) {
  nlohmann::json json = read_state("projects.json");
  if (!json["projects"].is_object()) json["projects"] = nlohmann::json::object();
  json["projects"][project] = workspace.string();
  json["last"] = project;
  write_state("projects.json", json);
}

fs::path resolve_workspace(const std::string& project, const std::string& asked,
                           const std::string& of_cluster) {
  const auto remembered = remembered_workspace(project);
  const std::string named = !asked.empty() ? asked : environment_variable("TESSERA_WORKSPACE");
  if (named.empty()) {
    return remembered ? *remembered
                      : fs::absolute(of_cluster.empty() ? "runs" : of_cluster).lexically_normal();
  }
  fs::path workspace = fs::absolute(named).lexically_normal();
  if (!workspace.has_filename()) workspace = workspace.parent_path();
  std::error_code ignored;
  if (remembered && *remembered != workspace && fs::exists(*remembered / project, ignored)) {
    throw Error(ExitCode::conflict, asked.empty() ? "TESSERA_WORKSPACE" : "--workspace",
                fmt::format("project {} lives in {}, not in {}", project, remembered->string(),
                            workspace.string()),
                "leave it out, or choose another project name");
  }
  return workspace;
}

fs::path workspace_to_read(const std::string& project, const std::string& asked) {
  return asked.empty() ? resolve_workspace(project, asked) : fs::absolute(asked).lexically_normal();
}

std::optional<double> cached_cpu_peak(const CpuPeakKey& key) {
  const nlohmann::json json = read_state("cpu-peaks.json");
  const auto found = json.find(peak_key(key));
  return found != json.end() && found->is_number() ? std::optional(found->get<double>())
                                                   : std::nullopt;
}

void cache_cpu_peak(const CpuPeakKey& key, double tflops) {
  nlohmann::json json = read_state("cpu-peaks.json");
  json[peak_key(key)] = tflops;
  write_state("cpu-peaks.json", json);
}

bool forget_cpu_peak(const CpuPeakKey& key) {
  nlohmann::json json = read_state("cpu-peaks.json");
  if (json.erase(peak_key(key)) == 0) return false;
  write_state("cpu-peaks.json", json);
  return true;
}

}  // namespace tessera::ledger
