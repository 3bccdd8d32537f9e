// SPDX-License-Identifier: Apache-2.0
// The driver's figures, from a fake NVML library: without a GPU the real one cannot be opened.
#include "trainer/device/cuda/libraries/nvml.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "tests/trainer/device/cuda/libraries/fake_nvml.h"

using namespace tessera::trainer;
using namespace tessera::trainer::cuda;

namespace {

// Opens the library in the folders that TESSERA_CUDA_LIBRARIES names.
std::unique_ptr<Nvml> open_fake() {
  ::setenv("TESSERA_CUDA_LIBRARIES", TESSERA_FAKE_NVML_FOLDER, 1);
  auto nvml = Nvml::open();
  ::unsetenv("TESSERA_CUDA_LIBRARIES");
  return nvml;
}

}  // namespace

TEST_CASE("figures come in their units, of the GPU at that bus address") {
  const auto nvml = open_fake();
  REQUIRE(nvml);
  CHECK(nvml->driver_version() == "580.95.05");
  CHECK(nvml->device("0000:00:00.0") == nullptr);
  const Nvml::Device device = nvml->device(kFakeBusId);
  REQUIRE(device != nullptr);
  CHECK(nvml->sm_clock_max_mhz(device) == 1980);
  CHECK(nvml->power_limit_w(device) == 700);
  CHECK(nvml->temperature_c(device) == 61);
  CHECK(nvml->throttle_reasons(device) == 0x44);
  CHECK(nvml->processes(device) == 3);
}

TEST_CASE("a figure that the driver does not know is absent") {
  const auto nvml = open_fake();
  REQUIRE(nvml);
  const Nvml::Device blind = nvml->device(kFakeBlindBusId);
  REQUIRE(blind != nullptr);
  CHECK_FALSE(nvml->sm_clock_mhz(blind).has_value());
  CHECK_FALSE(nvml->power_w(blind).has_value());
  CHECK_FALSE(nvml->throttle_reasons(blind).has_value());
  CHECK_FALSE(nvml->processes(blind).has_value());
  Watcher watcher(*nvml, blind);
  watcher.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const GpuWatch seen = watcher.end();
  CHECK(seen.samples > 0);
  CHECK_FALSE(seen.sm_clock_min_mhz.has_value());
  CHECK_FALSE(seen.power_mean_w.has_value());
  CHECK(seen.throttled.empty());
  CHECK_FALSE(seen.other_processes.has_value());
}

TEST_CASE(
    "a watch has the least clock, the mean power, the highest temperature and all reasons seen") {
  const auto nvml = open_fake();
  REQUIRE(nvml);
  Watcher watcher(*nvml, nvml->device(kFakeBusId));
  CHECK(watcher.end().samples == 0);
  watcher.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const GpuWatch seen = watcher.end();
  // Clocks and power alternate between two values.
  CHECK(seen.samples >= 3);
  CHECK(seen.sm_clock_min_mhz == 1200);
  REQUIRE(seen.sm_clock_mean_mhz.has_value());
  CHECK(*seen.sm_clock_mean_mhz > 1200);
  CHECK(*seen.sm_clock_mean_mhz < 1800);
  CHECK(*seen.power_mean_w > 500);
  CHECK(*seen.power_mean_w < 690);
  CHECK(seen.power_max_w == 690);
  CHECK(seen.temperature_max_c == 61);
  CHECK(seen.throttled == std::vector<std::string>{"hw-thermal", "power"});
  CHECK(seen.other_processes == 2);
  watcher.begin();
  CHECK(watcher.end().samples == 0);
}

TEST_CASE("idle and clocks that somebody set hold nothing down") {
  constexpr unsigned long long kIdle = 0x1;
  constexpr unsigned long long kSetClocks = 0x2;
  CHECK(throttle_names(kIdle | kSetClocks).empty());
  CHECK(throttle_names(0x20 | 0x80 | kIdle) == std::vector<std::string>{"power-brake", "thermal"});
}
