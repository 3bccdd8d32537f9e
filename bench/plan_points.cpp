// SPDX-License-Identifier: Apache-2.0
// How long planning takes and what it keeps in memory: plan_points [POINTS] expands
// bench/plan-points.yaml with as many seeds as give that many points (default 100,000), then plans
// their memory, then writes them as JSON. One line a stage; run it from the source tree.
#include <fmt/format.h>
#include <sys/resource.h>

#include <exception>

#include "apps/submit/plan/plan.h"
#include "apps/submit/plan/plan_memory.h"
#include "apps/submit/plan/plan_table.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/cluster/inventory.h"
#include "lib/sweep/sweep_file.h"

namespace {

using namespace tessera;

constexpr const char* kSweep = "bench/plan-points.yaml";
constexpr std::int64_t kPoints = 100000;

double peak_mb() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024e-6;  // of KiB
}

// The innermost axis: points that differ in it alone need the same memory.
void add_seeds(sweep::Grid& grid, std::int64_t points) {
  std::int64_t combinations = 1;
  for (const sweep::Axis& axis : grid.matrix->axes)
    combinations *= static_cast<std::int64_t>(axis.choices.size());
  sweep::Axis seeds{.keys = {"seed"}, .choices = {}};
  for (std::int64_t seed = 1; seed <= (points + combinations - 1) / combinations; ++seed)
    seeds.choices.push_back({{"seed", seed, "seeds"}});
  grid.matrix->axes.push_back(std::move(seeds));
}

class Stages {
 public:
  void ended(const char* name, const std::string& what) {
    const double now = monotonic_seconds();
    fmt::print("{:<16}{:>8.3f} s, {:>8.3f} s in all, at most {:>4.0f} MB: {}\n", name, now - last_,
               now - start_, peak_mb(), what);
    last_ = now;
  }

 private:
  double start_ = monotonic_seconds();
  double last_ = start_;
};

void measure(std::int64_t points) {
  sweep::Grid grid = sweep::read_sweep(kSweep);
  add_seeds(grid, points);
  Stages stages;
  cluster::Loaded loaded = cluster::load_inventory(grid, "");
  apps::Plan plan;
  plan.project = grid.project;
  plan.expansion = sweep::expand(grid, loaded.inventory);
  plan.clusters = std::move(loaded.clusters);
  plan.catalogue = std::move(loaded.inventory.catalogue);
  stages.ended("without memory", fmt::format("{} points", plan.expansion.points.size()));
  apps::plan_memory(plan);
  stages.ended("with memory", fmt::format("{} fit, {} do not", plan.expansion.points.size(),
                                          plan.expansion.dropped.size()));
  stages.ended("as JSON", fmt::format("{} bytes", apps::plan_json(plan).size()));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 2) throw Error(ExitCode::usage, "plan_points", "takes one number: POINTS");
    measure(argc < 2 ? kPoints : require_integer(argv[1], "POINTS", 1, sweep::kMostPoints));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "plan_points: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "plan_points: internal fault: {}\n", error.what());
    return static_cast<int>(ExitCode::internal);
  }
}
