// SPDX-License-Identifier: Apache-2.0
// What points are said to need, against what is known to have run.
#include "lib/point/memory_need.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "lib/cluster/inventory.h"
#include "lib/hardware/catalogue.h"
#include "lib/sweep/sweep_file.h"

using namespace tessera;
using namespace tessera::sweep;

namespace {

const Expansion& published() {
  static const Expansion expansion = [] {
    const Grid grid = read_sweep("yamls/sweeps/mpt-published.yaml");
    return expand(grid, cluster::load_inventory(grid, "").inventory);
  }();
  return expansion;
}

std::int64_t capacity_of(const Point& point) {
  static const hardware::Catalogue catalogue = hardware::built_in_catalogue();
  const hardware::Gpu* gpu = hardware::find_by_name(catalogue, point.gpu);
  return gpu_capacity(gpu->memory_gib, gpu->reserve_gib);
}

}  // namespace

TEST_CASE("all 216 published configurations, which ran, are planned as fitting") {
  struct Room {
    std::int64_t left;
    std::string text;
  };
  std::vector<Room> rooms;
  MemoryNeeds needs;
  for (const Planned& each : published().points) {
    const Point& point = each.point;
    const std::int64_t need = needs.bytes(point, point.microbatch_size);
    const std::int64_t left = capacity_of(point) - need;
    rooms.push_back(
        {left,
         fmt::format("{} {} s{} {} GPUs mb{} {} {} {}: {} of {}, {} left", point.gpu, each.label,
                     point.seq_len, point.gpus, point.microbatch_size, to_text(point.precision),
                     to_text(point.mixed_precision), to_text(point.activation_checkpointing),
                     gib_text(need), gib_text(capacity_of(point)), gib_text(left))});
    CAPTURE(rooms.back().text);
    CHECK(left >= 0);
  }
  CHECK(rooms.size() == 216);
  std::ranges::sort(rooms, {}, &Room::left);
  for (std::size_t i = 0; i < 10; ++i) MESSAGE(rooms[i].text);
}

TEST_CASE("the largest microbatch fits and the next one does not") {
  MemoryNeeds needs;
  int limited = 0;
  for (std::size_t i = 0; i < published().points.size(); i += 12) {
    Point point = published().points[i].point;
    point.global_batch = 512 * point.gpus;
    const std::int64_t largest = needs.largest_microbatch(point, capacity_of(point));
    CHECK(largest >= point.microbatch_size);
    CHECK(needs.bytes(point, largest) <= capacity_of(point));
    if (largest == 512) continue;
    ++limited;
    CHECK(needs.bytes(point, largest + 1) > capacity_of(point));
  }
  CHECK(limited > 10);
  Point point = published().points.front().point;
  CHECK(needs.largest_microbatch(point, 1 << 20) == 0);
}

TEST_CASE("what memory does not depend on is planned once") {
  MemoryNeeds needs;
  Point point = published().points.front().point;
  needs.bytes(point, 2);
  point.seed = 5;
  point.steps = 99;
  point.global_batch *= 2;
  point.cluster = "other";
  needs.bytes(point, 2);
  CHECK(needs.planned() == 1);
  point.activation_checkpointing = Checkpointing::full;
  needs.bytes(point, 2);
  CHECK(needs.planned() == 2);
}
