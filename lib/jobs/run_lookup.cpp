// SPDX-License-Identifier: Apache-2.0
#include "lib/jobs/run_lookup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>

#include "lib/base/error.h"

namespace tessera::jobs {

namespace {

constexpr std::size_t kMostNamed = 5;

}  // namespace

std::string name_of_repeat(const std::string& first, int repeat) {
  return repeat == 1 ? first : fmt::format("{}-r{}", first, repeat);
}

std::vector<std::string> known_runs(const ledger::Contents& contents) {
  std::vector<std::string> runs;
  std::set<std::string> seen;
  const auto add = [&](const std::string& run) {
    if (seen.insert(run).second) runs.push_back(run);
  };
  for (const ledger::Entry& entry : contents.entries) {
    for (const ledger::PlannedPoint& point : entry.points) {
      for (int repeat = 1; repeat <= point.repeats; ++repeat)
        add(name_of_repeat(point.run, repeat));
    }
  }
  for (const ledger::Entry& entry : contents.entries) {
    for (const ledger::RunRef& ref : entry.runs) add(ref.run);
  }
  return runs;
}

std::string find_run(const std::string& text, const std::vector<std::string>& runs,
                     const std::string& project) {
  if (std::ranges::find(runs, text) != runs.end()) return text;
  std::vector<std::string> fitting;
  for (const std::string& run : runs) {
    if (!text.empty() && run.find(text) != std::string::npos) fitting.push_back(run);
  }
  if (fitting.size() == 1) return fitting.front();
  if (fitting.empty()) {
    // Names that nothing is near to are too long to be listed in a line.
    throw Error(ExitCode::empty, text, fmt::format("no run of project {}", project),
                did_you_mean(text, runs)
                    .value_or(fmt::format("submit status {} --all lists its runs", project)));
  }
  const std::span<const std::string> named(fitting.data(), std::min(fitting.size(), kMostNamed));
  throw Error(ExitCode::usage, text, fmt::format("fits {} runs", fitting.size()),
              fmt::format("write more of one: {}{}", fmt::join(named, ", "),
                          fitting.size() > kMostNamed ? ", ..." : ""));
}

}  // namespace tessera::jobs
