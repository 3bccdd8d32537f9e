// SPDX-License-Identifier: Apache-2.0
#include "lib/jobs/run_folder.h"

#include <fmt/format.h>

#include <set>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/runlog/record.h"

namespace tessera::jobs {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMostAttempts = 1000000;

// "run.3.json" -> 3.
std::optional<int> attempt_of(std::string_view name) {
  if (runlog::LogFileName log; runlog::parse_log_file_name(name, log))
    return log.rank == 0 ? std::optional(log.attempt) : std::nullopt;
  const bool ours = name.starts_with("run.") && (name.ends_with(".json") || name.ends_with(".pid"));
  if (!ours) return std::nullopt;
  name.remove_prefix(4);
  const auto number = parse_integer(name.substr(0, name.find('.')));
  if (!number || *number < 1 || *number > kMostAttempts) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace

std::vector<int> attempts_in(const fs::path& run_dir) {
  std::set<int> attempts;
  std::error_code fault;
  for (fs::directory_iterator it(run_dir, fault), end; !fault && it != end; it.increment(fault)) {
    if (const auto attempt = attempt_of(it->path().filename().string())) attempts.insert(*attempt);
  }
  if (fault && fault != std::errc::no_such_file_or_directory) {
    throw Error(ExitCode::io, run_dir.string(), fmt::format("cannot be read: {}", fault.message()));
  }
  return {attempts.begin(), attempts.end()};
}

fs::path spec_file(const fs::path& run_dir, int attempt) {
  return run_dir / fmt::format("run.{}.json", attempt);
}

std::optional<sweep::RunSpec> read_spec(const fs::path& run_dir, int attempt) {
  const fs::path path = spec_file(run_dir, attempt);
  try {
    const auto text = read_file_if_exists(path);
    if (text) return sweep::parse_run_spec(*text, path.string());
  } catch (const Error&) {
    return std::nullopt;
  }
  return std::nullopt;
}

std::string first_repeat(const std::string& run) {
  const std::size_t at = run.rfind("-r");
  // An id is hexadecimal: it has no r.
  const bool is_repeat = at != std::string::npos && at + 2 < run.size() &&
                         run.find_first_not_of("0123456789", at + 2) == std::string::npos;
  return is_repeat ? run.substr(0, at) : run;
}

}  // namespace tessera::jobs
