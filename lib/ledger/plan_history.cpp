// SPDX-License-Identifier: Apache-2.0
#include "lib/ledger/plan_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lib/point/identity.h"
#include "lib/point/point_values.h"

namespace tessera::ledger {

namespace {

using Values = std::map<std::string, std::string>;

std::int64_t integer_of(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc() && end == text.data() + text.size() ? number : 0;
}

// The global batch of "samples 48", "per_gpu 6", "tokens 4096" or "accum 2"; 0: not whole.
std::int64_t global_batch_of(const std::string& batch, const sweep::Point& point) {
  const std::size_t space = batch.find(' ');
  if (space == std::string::npos) return integer_of(batch);
  const std::string kind = batch.substr(0, space);
  const std::int64_t count = integer_of(batch.substr(space + 1));
  std::int64_t samples = 0;
  if (kind == "samples") return count;
  if (kind == "per_gpu") return __builtin_mul_overflow(count, point.gpus, &samples) ? 0 : samples;
  if (kind == "tokens")
    return point.seq_len > 0 && count % point.seq_len == 0 ? count / point.seq_len : 0;
  if (kind == "accum" && (__builtin_mul_overflow(count, point.gpus, &samples) ||
                          __builtin_mul_overflow(samples, point.microbatch_size, &samples))) {
    return 0;
  }
  return samples;
}

// Drops do not tell what follows from the model, the cluster and the machine.
std::string key_of(const std::string& label, sweep::Point point) {
  point.model = {};
  point.lr = 0;
  point.nodes = 1;
  point.hybrid_group = 0;
  point.identity.clear();
  return label + " " + sweep::canonical_json(point);
}

std::string key_of(const DroppedPoint& dropped) {
  const auto point = point_of(dropped);
  return point ? key_of(dropped.label, *point) : std::string();
}

// With its threads and without: they are in a drop's values only where they were set.
std::vector<std::string> keys_of(const PlannedPoint& planned) {
  if (!planned.point) return {};
  sweep::Point point = *planned.point;
  std::vector<std::string> keys{key_of(planned.label, point)};
  if (point.threads == 0) return keys;
  point.threads = 0;
  keys.push_back(key_of(planned.label, point));
  return keys;
}

}  // namespace

std::optional<sweep::Point> point_of(const DroppedPoint& dropped) {
  if (dropped.values.empty()) return std::nullopt;
  const Values& values = dropped.values;
  sweep::Point point;
  for (const auto& [key, value] : values) sweep::set_value(point, key, value);
  if (const auto batch = values.find("batch"); batch != values.end())
    point.global_batch = global_batch_of(batch->second, point);
  constexpr std::string_view kEnvironment = "env.";
  for (const auto& [key, value] : values) {
    if (key.starts_with(kEnvironment) && value != "null")
      point.env[key.substr(kEnvironment.size())] = value;
  }
  const sweep::Point said = point;
  point = sweep::normalized(std::move(point));
  // Without its model the normal form cannot tell whether these have an effect; a drop's values do.
  point.fused_gelu = said.fused_gelu;
  if (point.activation_checkpointing != Checkpointing::none)
    point.checkpointing_blocks = said.checkpointing_blocks;
  return point;
}

PlanHistory::PlanHistory(const Contents& contents) {
  // Each file is in order, but there is one for each user and host.
  std::vector<const Entry*> plans;
  for (const Entry& entry : contents.entries) {
    if (entry.op == Op::plan) plans.push_back(&entry);
  }
  std::ranges::stable_sort(plans, {}, [](const Entry* entry) { return entry->utc; });
  int number = 0;
  for (const Entry* entry : plans) {
    // What a sweep file excludes and then includes is selected.
    for (const DroppedPoint& dropped : entry->dropped) {
      if (dropped.reason == "duplicate") continue;
      if (const std::string key = key_of(dropped); !key.empty()) words_[key].dropped = number;
    }
    ++number;
    for (const PlannedPoint& point : entry->points) {
      for (const std::string& key : keys_of(point)) {
        Word& word = words_[key];
        word.selected = number;
        if (std::ranges::find(word.ids, point.id) == word.ids.end()) word.ids.push_back(point.id);
      }
    }
    ++number;
  }
}

bool PlanHistory::dropped_last(const PlannedPoint& point) const {
  return std::ranges::any_of(keys_of(point), [&](const std::string& key) {
    const auto found = words_.find(key);
    return found != words_.end() && found->second.dropped > found->second.selected;
  });
}

const PlanHistory::Word* PlanHistory::find(const DroppedPoint& dropped) const {
  const auto found = words_.find(key_of(dropped));
  return found == words_.end() ? nullptr : &found->second;
}

bool PlanHistory::selected_last(const DroppedPoint& dropped) const {
  const Word* word = find(dropped);
  return word != nullptr && word->selected > word->dropped;
}

std::vector<std::string> PlanHistory::selected(const DroppedPoint& dropped) const {
  const Word* word = find(dropped);
  return word == nullptr ? std::vector<std::string>() : word->ids;
}

}  // namespace tessera::ledger
