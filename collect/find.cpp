// SPDX-License-Identifier: Apache-2.0
#include "collect/find.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "collect/readers/readers.h"
#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/runlog/record.h"

namespace tessera::collect {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kIdLength = 12;
constexpr int kDeepest = 16;

bool is_id(std::string_view text) {
  return text.size() == kIdLength &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// K of "run.K.json" or "run.K.pid".
std::optional<int> attempt_of(std::string_view name, std::string_view suffix) {
  constexpr std::string_view kPrefix = "run.";
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix) ||
      name.size() <= kPrefix.size() + suffix.size()) {
    return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(suffix.size());
  const auto attempt = parse_integer(name);
  if (!attempt || *attempt < 1 || *attempt > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*attempt);
}

std::vector<fs::directory_entry> entries_of(const fs::path& folder, std::error_code& fault) {
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault))
    entries.push_back(*it);
  std::ranges::sort(entries, {}, [](const fs::directory_entry& entry) { return entry.path(); });
  return entries;
}

RunFiles files_of_run(const fs::path& folder, const std::vector<fs::directory_entry>& entries) {
  std::map<int, AttemptFiles> attempts;
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    runlog::LogFileName parts;
    if (runlog::parse_log_file_name(name, parts)) {
      attempts[parts.attempt].logs.push_back(entry.path());
    } else if (const auto pid = attempt_of(name, ".pid")) {
      attempts[*pid].pid = entry.path();
    } else if (const auto told = attempt_of(name, ".json")) {
      attempts[*told].specification = entry.path();
    }
  }
  RunFiles files;
  files.folder = folder;
  for (auto& [attempt, of_attempt] : attempts) {
    of_attempt.attempt = attempt;
    files.attempts.push_back(std::move(of_attempt));
  }
  if (!files.attempts.empty()) return files;
  for (const fs::directory_entry& entry : entries) {
    std::error_code ignored;
    if (entry.is_regular_file(ignored) && !entry.is_symlink(ignored) &&
        reader_of(entry.path()) != nullptr)
      files.logs.push_back(entry.path());
  }
  return files;
}

[[noreturn]] void cannot_read(const fs::path& path, const std::error_code& fault) {
  throw Error(ExitCode::io, path.string(), fmt::format("cannot be read: {}", fault.message()));
}

void descend(const fs::path& folder, int depth, std::vector<RunFiles>& found, Notes& notes) {
  std::error_code fault;
  const auto entries = entries_of(folder, fault);
  if (fault) {
    if (depth == 0) cannot_read(folder, fault);
    notes.add(folder, fmt::format("cannot be read: {}; left out", fault.message()));
    return;
  }
  RunFiles files = files_of_run(folder, entries);
  const bool is_run = !files.attempts.empty();
  if (is_run || !files.logs.empty()) found.push_back(std::move(files));
  if (is_run || depth == kDeepest) return;
  for (const fs::directory_entry& entry : entries) {
    std::error_code ignored;
    // A link could lead back up and give every run twice.
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored))
      descend(entry.path(), depth + 1, found, notes);
  }
}

void gather_files(const fs::path& folder, int depth, std::vector<fs::path>& found, Notes& notes) {
  std::error_code fault;
  const auto entries = entries_of(folder, fault);
  if (fault) {
    if (depth == 0) cannot_read(folder, fault);
    notes.add(folder, fmt::format("cannot be read: {}; left out", fault.message()));
    return;
  }
  for (const fs::directory_entry& entry : entries) {
    std::error_code ignored;
    if (entry.is_regular_file(ignored)) {
      found.push_back(entry.path());
    } else if (depth < kDeepest && entry.is_directory(ignored) && !entry.is_symlink(ignored)) {
      gather_files(entry.path(), depth + 1, found, notes);
    }
  }
}

}  // namespace

std::optional<RunName> parse_run_name(std::string_view name) {
  const std::size_t separator = name.find("--");
  if (separator == 0 || separator == std::string_view::npos) return std::nullopt;
  RunName parts;
  parts.project = name.substr(0, separator);
  std::string_view rest = name.substr(separator + 2);
  if (const std::size_t at = rest.rfind("-r"); at != std::string_view::npos) {
    const auto repeat = parse_integer(rest.substr(at + 2));
    if (repeat && *repeat >= 2 && *repeat <= 9999) {
      parts.repeat = static_cast<int>(*repeat);
      rest = rest.substr(0, at);
    }
  }
  if (rest.size() < kIdLength + 2 || rest[rest.size() - kIdLength - 1] != '-') return std::nullopt;
  parts.id = rest.substr(rest.size() - kIdLength);
  if (!is_id(parts.id)) return std::nullopt;
  return parts;
}

std::string RunFiles::name() const {
  return fs::absolute(folder).lexically_normal().filename().string();
}

bool Selection::takes(std::string_view of_project, std::string_view run) const {
  if (!project.empty() && of_project != project) return false;
  return std::ranges::all_of(filters, [&](const std::string& filter) {
    return run.find(filter) != std::string_view::npos;
  });
}

std::vector<RunFiles> find_project(const fs::path& workspace, const std::string& project) {
  const fs::path folder = workspace / project;
  std::error_code fault;
  const auto entries = entries_of(folder, fault);
  if (fault == std::errc::no_such_file_or_directory) return {};
  if (fault) cannot_read(folder, fault);
  std::vector<RunFiles> found;
  for (const fs::directory_entry& entry : entries) {
    std::error_code ignored;
    const std::string called = entry.path().filename().string();
    const auto name = parse_run_name(called);
    if (called.starts_with('.') || (name && name->project != project)) continue;
    if (!entry.is_directory(ignored)) continue;
    const auto inside = entries_of(entry.path(), fault);
    if (fault) cannot_read(entry.path(), fault);
    RunFiles files = files_of_run(entry.path(), inside);
    files.project = project;
    // A run that has not begun has no files yet, but is one.
    if (name || !files.attempts.empty() || !files.logs.empty()) found.push_back(std::move(files));
  }
  return found;
}

std::vector<RunFiles> find_below(const fs::path& folder, Notes& notes) {
  std::vector<RunFiles> found;
  descend(folder, 0, found, notes);
  return found;
}

std::vector<fs::path> find_files(const fs::path& path, Notes& notes) {
  std::error_code fault;
  if (fs::is_directory(path, fault)) {
    std::vector<fs::path> found;
    gather_files(path, 0, found, notes);
    return found;
  }
  if (!fs::exists(path, fault)) {
    throw Error(ExitCode::io, path.string(), "cannot be read: No such file or directory");
  }
  return {path};
}

}  // namespace tessera::collect
