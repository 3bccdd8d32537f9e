// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/project/rerun.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/jobs/run_folder.h"
#include "lib/jobs/run_lookup.h"
#include "lib/ledger/ledger.h"
#include "lib/point/identity.h"

namespace tessera::submit {

namespace fs = std::filesystem;

namespace {

// The specification of the newest attempt that has a readable one.
std::optional<sweep::RunSpec> last_spec(const fs::path& run_dir) {
  const std::vector<int> attempts = jobs::attempts_in(run_dir);
  for (auto attempt = attempts.rbegin(); attempt != attempts.rend(); ++attempt) {
    if (auto spec = jobs::read_spec(run_dir, *attempt)) return spec;
  }
  return std::nullopt;
}

// The point of `run`, whose first repeat is `first`.
sweep::Planned planned_of(const std::string& run, const std::string& first,
                          const std::optional<ledger::PlannedPoint>& line,
                          const fs::path& project_dir) {
  const auto spec = last_spec(project_dir / run);
  sweep::Planned planned;
  if (line && line->point) {
    planned.point = *line->point;
  } else if (spec) {
    planned.point = spec->point;
  } else {
    throw Error(ExitCode::refused, run, "neither ledger nor specification say what it was",
                "submit its sweep with --only all");
  }
  planned.label = line ? line->label : spec->label;
  planned.id = line ? line->id : spec->id;
  planned.repeats = line ? line->repeats : spec->repeats;
  if (spec) {
    if (planned.point.microbatch_size == sweep::kAutoMicrobatch)
      planned.microbatch = spec->microbatch;
    planned.unset_env = spec->unset_env;
    planned.derived_from = spec->derived_from;
  }
  const std::string project = project_dir.filename().string();
  const std::string slug = sweep::slug(planned.label, planned.point, project);
  if (sweep::point_id(planned.point) != planned.id ||
      sweep::run_name(project, slug, planned.id, 1) != first) {
    throw Error(ExitCode::conflict, run, "ledger or specification hold another point than its name",
                "submit its sweep with --only all");
  }
  return planned;
}

}  // namespace

Rerun rerun_of(const fs::path& project_dir, const std::vector<std::string>& texts) {
  const ledger::Contents contents = ledger::read_ledger(project_dir);
  if (contents.entries.empty() && contents.damage.empty()) {
    throw Error(ExitCode::empty, project_dir.string(), "nothing was submitted here",
                jobs::kWhereIsIt);
  }
  ledger::require_undamaged(contents);
  std::map<std::string, ledger::PlannedPoint> lines;  // by the first repeat's run; the last word
  for (const ledger::Entry& entry : contents.entries) {
    for (const ledger::PlannedPoint& point : entry.points) {
      ledger::PlannedPoint& line = lines[point.run];
      const int repeats = std::max(line.repeats, point.repeats);
      line = point;
      // A later plan of fewer repeats does not take away those that were run.
      line.repeats = repeats;
    }
  }
  const std::vector<std::string> known = jobs::known_runs(contents);
  Rerun result;
  std::set<std::string> firsts;
  for (const std::string& text : texts) {
    const std::string run = jobs::find_run(text, known, project_dir.filename().string());
    result.named.insert(run);
    const std::string first = jobs::first_repeat(run);
    if (!firsts.insert(first).second) continue;
    const auto line = lines.find(first);
    result.plan.points.push_back(planned_of(
        run, first, line != lines.end() ? std::optional(line->second) : std::nullopt, project_dir));
  }
  return result;
}

}  // namespace tessera::submit
