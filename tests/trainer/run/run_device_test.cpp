// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/run_device.h"

#include <doctest/doctest.h>

namespace tessera::trainer::test {

TEST_CASE("a GPU that often had nothing to do is told of, with the times that say why") {
  runlog::StepStatistics steps;
  CHECK_FALSE(host_bound_text({}, steps));
  CHECK_FALSE(host_bound_text({.idle_share = 0.1}, steps));
  CHECK(host_bound_text({.idle_share = 0.25}, steps).value() ==
        "the GPU waits for the host: it had nothing to do at 25 % of the moments at which more "
        "came");
  steps.issue_median_s = 0.0123;
  CHECK(host_bound_text({.idle_share = 0.25}, steps).value().ends_with("more came"));
  steps.median_s = 0.02;
  CHECK(host_bound_text({.idle_share = 0.25}, steps)
            .value()
            .ends_with("; a step is handed over in 12.3 ms and takes 20.0 ms"));
}

TEST_CASE("what was seen of a GPU stands in the footer, and nothing where nothing was seen") {
  runlog::Footer footer;
  add({}, footer);
  CHECK_FALSE(footer.sm_clock_min_mhz);
  CHECK_FALSE(footer.power_w_mean);
  CHECK_FALSE(footer.temperature_c_max);
  CHECK_FALSE(footer.other_processes);
  add({.sm_clock_min_mhz = 1410,
       .power_mean_w = 512.5,
       .temperature_max_c = 63,
       .other_processes = 0},
      footer);
  CHECK(footer.sm_clock_min_mhz == 1410);
  CHECK(footer.power_w_mean == 512.5);
  CHECK(footer.temperature_c_max == 63);
  CHECK(footer.other_processes == 0);
}

TEST_CASE("other processes on the GPU are told of by their number") {
  CHECK_FALSE(shared_gpu_text({}));
  CHECK_FALSE(shared_gpu_text({.other_processes = 0}));
  CHECK(shared_gpu_text({.other_processes = 1}).value() ==
        "1 other process computed on this GPU while steps were measured");
  CHECK(shared_gpu_text({.other_processes = 2}).value().starts_with("2 other processes computed"));
}

TEST_CASE("a reserve that the specification does not give is 2 GiB") {
  sweep::RunSpec spec;
  CHECK(reserve_of(spec) == std::int64_t{2} << 30);
  spec.reserve_bytes = 7;
  CHECK(reserve_of(spec) == 7);
}

}  // namespace tessera::trainer::test
