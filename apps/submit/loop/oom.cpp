// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/oom.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "apps/submit/loop/select.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/point/identity.h"
#include "lib/point/run_spec.h"

namespace tessera::submit {

namespace {

using sweep::Point;

std::int64_t Point::* member_of(const std::string& axis) {
  if (axis == "microbatch_size") return &Point::microbatch_size;
  if (axis == "seq_len") return &Point::seq_len;
  return nullptr;
}

// All of the point but the axis.
std::string rest_of(Point point, std::int64_t Point::* axis) {
  point.*axis = 1;
  point.global_batch = 1;
  return sweep::canonical_json(point);
}

bool ran_out(const std::map<std::string, ledger::RunState>& states, const std::string& run) {
  const auto found = states.find(run);
  if (found == states.end()) return false;
  const bool open = std::ranges::any_of(found->second.attempts,
                                        [](const auto& a) { return a.last != ledger::Op::final; });
  const ledger::AttemptState* attempt = deciding_attempt(found->second);
  return !open && attempt != nullptr &&
         (attempt->status == runlog::Status::oom || attempt->status == runlog::Status::host_oom);
}

// What an automatic microbatch was in the run's last attempt; 0: not known.
std::int64_t microbatch_of(const std::filesystem::path& project_dir,
                           const ledger::RunState& state) {
  const std::filesystem::path path =
      project_dir / state.ref.run / fmt::format("run.{}.json", deciding_attempt(state)->attempt);
  try {
    const auto text = read_file_if_exists(path);
    return text ? sweep::parse_run_spec(*text, path.string()).microbatch : 0;
  } catch (const Error&) {
    return 0;
  }
}

std::string run_of(const sweep::Planned& point, const std::string& project, int repeat) {
  return sweep::run_name(project, sweep::slug(point.label, point.point, project), point.id, repeat);
}

sweep::Planned halved(const sweep::Planned& point) {
  sweep::Planned half = point;
  half.point.microbatch_size /= 2;
  half.point = sweep::normalized(half.point);
  half.id = sweep::point_id(half.point);
  half.derived_from = point.id;
  return half;
}

}  // namespace

std::string OomWall::fault(const std::string& axis) {
  return member_of(axis) != nullptr ? "" : "microbatch_size or seq_len";
}

OomWall::OomWall(std::string axis) : axis_(std::move(axis)), member_(member_of(axis_)) {
  if (!axis_.empty() && member_ == nullptr)
    throw Error(ExitCode::internal, "stop_axis_after_oom", axis_);
}

void OomWall::ran_out(const Point& point) {
  if (member_ == nullptr || point.*member_ == sweep::kAutoMicrobatch) return;
  const std::int64_t value = point.*member_;
  const auto [least, is_new] = least_.try_emplace(rest_of(point, member_), value);
  if (!is_new) least->second = std::min(least->second, value);
}

std::optional<std::string> OomWall::beyond(const Point& point) const {
  if (member_ == nullptr || least_.empty()) return std::nullopt;
  const auto found = least_.find(rest_of(point, member_));
  if (found == least_.end() || point.*member_ <= found->second) return std::nullopt;
  return fmt::format("{} {} ran out of memory", axis_, found->second);
}

OomRetries oom_retries(const std::vector<sweep::Planned>& points, const std::string& project,
                       int repeats, const std::map<std::string, ledger::RunState>& states,
                       const std::filesystem::path& project_dir) {
  OomRetries retries;
  std::set<std::string> known;
  for (const sweep::Planned& point : points) known.insert(point.id);
  for (const sweep::Planned& asked : points) {
    for (int repeat = 1; repeat <= repeats; ++repeat) {
      if (asked.point.microbatch_size == sweep::kAutoMicrobatch) {
        const std::string run = run_of(asked, project, repeat);
        if (!ran_out(states, run)) continue;
        const std::int64_t half = microbatch_of(project_dir, states.at(run)) / 2;
        if (half == 0) continue;
        const auto [least, is_new] = retries.microbatches.try_emplace(asked.id, half);
        if (!is_new) least->second = std::min(least->second, half);
        retries.again.push_back(run);
        continue;
      }
      for (sweep::Planned point = asked;
           point.point.microbatch_size > 1 && ran_out(states, run_of(point, project, repeat));) {
        point = halved(point);
        if (known.insert(point.id).second) retries.derived.push_back(point);
      }
    }
  }
  return retries;
}

}  // namespace tessera::submit
