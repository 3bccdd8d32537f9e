// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/plan/plan_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "lib/base/text.h"
#include "lib/memory/report.h"
#include "lib/point/memory_need.h"
#include "lib/point/point_values.h"

namespace tessera::apps {

namespace {

using sweep::gib_text;
using sweep::Planned;
using sweep::Point;

struct Capacity {
  std::int64_t bytes = 0;
  std::string text;  // "79.6 less a reserve of 2.0"
};

// Nothing: the catalogue lacks the GPU, or the cluster's trainer has not said.
std::optional<Capacity> capacity_of(const Plan& plan, const Point& point) {
  if (point.gpu == "cpu") {
    const auto can = plan.capabilities.find(point.cluster);
    if (can == plan.capabilities.end() || can->second.memory_bytes == 0) return std::nullopt;
    const std::int64_t machine = can->second.memory_bytes;
    return Capacity{sweep::cpu_capacity(machine) / point.gpus,
                    fmt::format("nine tenths of the machine's {}{}", gib_text(machine),
                                point.gpus > 1 ? fmt::format(" for {} ranks", point.gpus) : "")};
  }
  const hardware::Gpu* gpu = hardware::find_by_name(plan.catalogue, point.gpu);
  if (gpu == nullptr) return std::nullopt;
  return Capacity{
      sweep::gpu_capacity(gpu->memory_gib, gpu->reserve_gib),
      fmt::format("{:.1f} less a reserve of {:.1f}", gpu->memory_gib, gpu->reserve_gib)};
}

sweep::Dropped drop(const Planned& each, std::int64_t need, const Capacity& capacity) {
  const bool is_auto = each.point.microbatch_size == sweep::kAutoMicrobatch;
  return {.reason = sweep::DropReason::memory,
          .detail =
              fmt::format("{} needs {}, {} has {} ({}): {} missing",
                          is_auto ? "even one sequence" : "it", gib_text(need), each.point.gpu,
                          gib_text(capacity.bytes), capacity.text, gib_text(need - capacity.bytes)),
          .label = each.label,
          .values = sweep::values_of(each.point)};
}

std::int64_t microbatch_of(const Planned& each) {
  return each.microbatch > 0 ? each.microbatch : each.point.microbatch_size;
}

std::string checkpointing_text(const Point& point) {
  const std::string_view kind = to_text(point.activation_checkpointing);
  return point.checkpointing_blocks == memory::kAllBlocks
             ? std::string(kind)
             : fmt::format("{} {}", kind, point.checkpointing_blocks);
}

std::string table(const Plan& plan, const Planned& each, std::size_t points, std::size_t width) {
  const Point& point = each.point;
  const memory::Plan planned = memory::plan(sweep::memory_config(point, microbatch_of(each)));
  const memory::Report report = memory::report(planned);
  std::string text = paragraph(
      fmt::format("{} s{}, {} x {}, microbatch {}, {} {} {}, checkpointing {}{}: {}, {}",
                  each.label, point.seq_len, point.gpus, point.gpu, microbatch_of(each),
                  to_text(point.precision), to_text(point.mixed_precision),
                  to_text(point.sharding_strategy), checkpointing_text(point),
                  point.activation_cpu_offload ? ", activations in host memory" : "",
                  counted(points, "point"), points == 1 ? each.id : "the first " + each.id),
      width, 0, 2);
  const auto line = [&](std::string_view name, std::int64_t bytes, const std::string& rest = "") {
    text += fmt::format("  {:<20} {:>12}{}\n", name, gib_text(bytes), rest);
  };
  for (const memory::Report::Row& row : report.rows) line(to_text(row.use), row.bytes);
  line("gaps", report.gaps);
  std::int64_t bytes = report.device_bytes;
  if (point.gpu == "cpu") {
    line("copies for the host", report.pinned_bytes);
    bytes += report.pinned_bytes;
  }
  line("in all, a device", bytes);
  if (const auto capacity = capacity_of(plan, point)) {
    line("device memory", capacity->bytes, fmt::format(" ({})", capacity->text));
    line("left", capacity->bytes - bytes);
  }
  if (point.gpu != "cpu") line("pinned, of the host", report.pinned_bytes);
  const memory::Action& peak = planned.actions[static_cast<std::size_t>(report.peak_tick)];
  text += fmt::format("  fullest in the {} of {}\n", to_text(peak.kind),
                      memory::unit_name(peak.unit, point.model));
  return text;
}

}  // namespace

void plan_memory(Plan& plan) {
  sweep::MemoryNeeds needs;
  std::vector<Planned> kept;
  kept.reserve(plan.expansion.points.size());
  std::optional<std::pair<std::pair<std::string, std::string>, std::optional<Capacity>>> last;
  for (Planned& each : plan.expansion.points) {
    const Point& point = each.point;
    const auto device = std::pair(point.cluster, fmt::format("{} {}", point.gpu, point.gpus));
    if (!last || last->first != device) last = {device, capacity_of(plan, point)};
    if (const auto& capacity = last->second) {
      if (point.microbatch_size == sweep::kAutoMicrobatch) {
        each.microbatch = needs.largest_microbatch(point, capacity->bytes);
      }
      const std::int64_t size = std::max<std::int64_t>(1, microbatch_of(each));
      if (const std::int64_t need = needs.bytes(point, size); need > capacity->bytes) {
        plan.expansion.dropped.push_back(drop(each, need, *capacity));
        continue;
      }
    }
    kept.push_back(std::move(each));
  }
  plan.expansion.points = std::move(kept);
}

std::string memory_tables(const Plan& plan, std::size_t width) {
  struct Group {
    const Planned* first = nullptr;
    std::int64_t bytes = 0;
    std::size_t points = 0;
  };
  sweep::MemoryNeeds needs;
  std::map<std::string, Group> groups;
  std::string text;
  for (const Planned& each : plan.expansion.points) {
    const std::int64_t size = microbatch_of(each);
    if (size == sweep::kAutoMicrobatch) {
      text +=
          paragraph(fmt::format("{} s{}, {} x {}: microbatch auto, and its memory is not known",
                                each.label, each.point.seq_len, each.point.gpus, each.point.gpu),
                    width, 0, 2);
      continue;
    }
    Group& group = groups[each.point.gpu + needs.key(each.point, size)];
    if (group.first == nullptr) group = {&each, needs.bytes(each.point, size), 0};
    ++group.points;
  }
  std::vector<Group> sorted;
  for (const auto& [key, group] : groups) sorted.push_back(group);
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &Group::bytes);
  for (const Group& group : sorted) {
    if (!text.empty()) text += "\n";
    text += table(plan, *group.first, group.points, width);
  }
  return text;
}

}  // namespace tessera::apps
