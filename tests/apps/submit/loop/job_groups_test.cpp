// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/job_groups.h"

#include <doctest/doctest.h>

using namespace tessera::submit;

namespace {

RunToPlace run_of(std::int64_t ranks, double seconds, std::int64_t limit_s) {
  return {.shape = {.gpu = "h100_80gb", .ranks = ranks, .nodes = 1},
          .seconds = seconds,
          .time_limit_s = limit_s};
}

std::vector<std::vector<std::size_t>> members(const std::vector<JobGroup>& groups) {
  std::vector<std::vector<std::size_t>> all;
  for (const JobGroup& group : groups) all.push_back(group.runs);
  return all;
}

using Members = std::vector<std::vector<std::size_t>>;

}  // namespace

TEST_CASE("without packing and arrays every run has a job of its own") {
  const std::vector<RunToPlace> runs{run_of(8, 60, 600), run_of(8, 60, 600), run_of(16, 0, 0)};
  const auto groups = group_jobs(runs, {});
  CHECK(members(groups) == Members{{0}, {1}, {2}});
  CHECK(groups[0].time_limit_s == 600);
  CHECK_FALSE(groups[0].array);
}

TEST_CASE("runs of one shape share an allocation as long as they fit it") {
  const std::vector<RunToPlace> runs{run_of(8, 1800, 3600),  run_of(16, 1800, 3600),
                                     run_of(8, 1800, 3600),  run_of(8, 3600, 7200),
                                     run_of(16, 7200, 9000), run_of(8, 1800, 3600)};
  const auto groups = group_jobs(runs, {.pack_s = 7200});
  // 0, 2 and 3 fill two hours; 5 begins the next; 4 does not fit behind 1.
  CHECK(members(groups) == Members{{0, 2, 3}, {1}, {4}, {5}});
  CHECK(groups[0].time_limit_s == 14400);
}

TEST_CASE("what nobody knows the length of, and what is longer by itself, is alone") {
  const std::vector<RunToPlace> runs{run_of(8, 0, 3600), run_of(8, 60, 0), run_of(8, 9000, 9000),
                                     run_of(8, 60, 600)};
  CHECK(members(group_jobs(runs, {.pack_s = 7200})) == Members{{0}, {1}, {2}, {3}});
}

TEST_CASE("arrays hold one shape and one limit, and no more than the cluster takes") {
  std::vector<RunToPlace> runs(7, run_of(8, 0, 600));
  runs[2] = run_of(16, 0, 600);
  runs[4] = run_of(8, 0, 1200);
  const auto groups = group_jobs(runs, {.array_size = 3});
  CHECK(members(groups) == Members{{0, 1, 3}, {2}, {4}, {5, 6}});
  CHECK(groups[0].array);
  CHECK_FALSE(groups[1].array);
  CHECK(groups[3].array);
  CHECK(groups[3].time_limit_s == 600);
}
