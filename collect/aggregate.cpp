// SPDX-License-Identifier: Apache-2.0
#include "collect/aggregate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace tessera::collect {

namespace {

using runlog::Status;

using PointKey = std::pair<std::string, std::string>;    // project, id
using DeviceKey = std::pair<std::string, std::int64_t>;  // device, count

DeviceKey device_of(const Row& row) {
  return {row.facts.device_name.value_or(""), row.facts.device_count
                                                  ? *row.facts.device_count
                                                  : row.facts.ran<&Point::gpus>().value_or(0)};
}

// What a row shows when no repeat was measured: what may still change first, then what happened.
int interest(const Row& row) {
  switch (row.status) {
    case Status::running:
      return 0;
    case Status::pending:
      return 2;
    case Status::missing:
    case Status::skipped:
      return 3;
    default:
      return 1;
  }
}

// "2 of 3 repeats ok; repeat 2: oom" for repeats that gave no result.
std::string failed_repeats(const std::vector<Row>& group, const Row& shown) {
  std::string text;
  for (const Row& row : group) {
    if (row.status == shown.status || row.run == shown.run) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ",
                        row.facts.rep ? fmt::format("repeat {}", *row.facts.rep) : row.run,
                        to_text(row.status));
  }
  return text;
}

Row put_together(std::vector<Row> group) {
  std::ranges::sort(group, {}, [](const Row& row) { return std::tie(row.run, row.log); });
  std::vector<const Row*> measured;
  for (const Status wanted : {Status::ok, Status::partial}) {
    if (!measured.empty()) break;
    for (const Row& row : group) {
      if (row.status == wanted && row.tokens_per_s) measured.push_back(&row);
    }
  }
  Row result;
  if (measured.empty()) {
    result = *std::ranges::min_element(group, {}, interest);
  } else {
    std::ranges::stable_sort(measured, {}, [](const Row* row) { return *row->tokens_per_s; });
    result = *measured[(measured.size() - 1) / 2];
    if (measured.size() > 1) {
      const double fastest = *measured.back()->tokens_per_s;
      const double slowest = *measured.front()->tokens_per_s;
      result.repeat_spread_pct = 100 * (fastest - slowest) / *result.tokens_per_s;
    }
  }
  result.attempts = 0;
  result.repeats_ok = 0;
  std::set<std::string> runs;
  for (const Row& row : group) {
    result.attempts += row.attempts;
    result.repeats_ok += row.status == Status::ok ? 1 : 0;
    result.repeats_asked = std::max(result.repeats_asked, row.repeats_asked);
    runs.insert(row.run);
  }
  result.repeats_asked = std::max(result.repeats_asked, static_cast<int>(runs.size()));
  if (const std::string failed = failed_repeats(group, result); !failed.empty())
    result.reason += fmt::format("{}{}", result.reason.empty() ? "" : "; ", failed);
  return result;
}

}  // namespace

bool before(const Row& a, const Row& b) {
  const auto key = [](const Row& row) {
    return std::tuple(row.gpu, row.facts.ran<&Point::precision>().value_or(""), row.model_size,
                      row.facts.ran<&Point::seq_len>().value_or(0),
                      row.facts.ran<&Point::gpus>().value_or(0),
                      row.facts.ran<&Point::global_batch>().value_or(0),
                      row.facts.ran<&Point::microbatch_size>().value_or(0));
  };
  const auto key_a = key(a);
  const auto key_b = key(b);
  if (key_a != key_b) return key_a > key_b;
  return std::tie(a.project, a.run, a.id, a.facts.device_name, a.log, a.reason) <
         std::tie(b.project, b.run, b.id, b.facts.device_name, b.log, b.reason);
}

std::vector<Row> aggregate(std::vector<Row> runs) {
  std::map<PointKey, std::map<DeviceKey, std::vector<Row>>> found;
  std::map<PointKey, std::vector<Row>> without_device;
  std::vector<Row> rows;
  for (Row& row : runs) {
    const PointKey point{row.project, row.id};
    if (row.id.empty()) {
      rows.push_back(std::move(row));  // a dropped point: there is nothing to put it together with
    } else if (row.facts.device_name) {
      found[point][device_of(row)].push_back(std::move(row));
    } else {
      without_device[point].push_back(std::move(row));
    }
  }
  for (auto& [point, group] : without_device) {
    auto& devices = found[point];
    auto& target = devices.empty() ? devices[DeviceKey{}] : devices.begin()->second;
    std::ranges::move(group, std::back_inserter(target));
  }
  for (auto& [point, devices] : found) {
    for (auto& [device, group] : devices) rows.push_back(put_together(std::move(group)));
  }
  std::ranges::stable_sort(rows, before);
  return rows;
}

}  // namespace tessera::collect
