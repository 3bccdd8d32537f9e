// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/run_device.h"

#include <fmt/format.h>

#include "lib/point/memory_need.h"
#include "trainer/run/accept.h"

namespace tessera::trainer {

namespace {

constexpr double kGpuPeakSeconds = 1.0;
// The reserve of a catalogue entry that has none (lib/hardware/catalogue.h).
constexpr std::int64_t kUnknownReserveBytes = std::int64_t{2} << 30;

}  // namespace

std::unique_ptr<Gpu> open_run_gpu(const sweep::RunSpec& spec) {
  if (spec.point.gpu == "cpu") return nullptr;
  std::unique_ptr<Gpu> gpu = open_gpu({.ordinal = 0,
                                       .tf32 = spec.point.precision == Precision::tf32,
                                       .deterministic = spec.point.deterministic,
                                       .choice_cache = default_choice_cache()});
  expect_device(spec, gpu->info().name);
  return gpu;
}

std::int64_t reserve_of(const sweep::RunSpec& spec) {
  return spec.reserve_bytes > 0 ? spec.reserve_bytes : kUnknownReserveBytes;
}

std::int64_t run_capacity(const sweep::RunSpec& spec, const Gpu* gpu, std::int64_t machine_bytes) {
  return gpu == nullptr ? sweep::cpu_capacity(machine_bytes)
                        : gpu->info().memory_bytes - reserve_of(spec);
}

MeasuredPeak gpu_peak(const sweep::RunSpec& spec, Gpu& gpu) {
  MeasuredPeak peak;
  // The point's GPU name holds for the device found only if the driver's name was checked.
  peak.gpu = spec.expect.empty() && spec.expect_match.empty() ? "" : spec.point.gpu;
  if (spec.peak) peak.peak = *spec.peak;
  const double measured = gpu.measure_gemm_tflops(spec.point.precision, kGpuPeakSeconds);
  if (measured > 0) peak.gemm_tflops = measured;
  return peak;
}

void add(const GpuWatch& seen, runlog::Footer& footer) {
  footer.sm_clock_min_mhz = seen.sm_clock_min_mhz;
  footer.power_w_mean = seen.power_mean_w;
  footer.temperature_c_max = seen.temperature_max_c;
  footer.throttled = seen.throttled;
  footer.other_processes = seen.other_processes;
}

std::optional<std::string> unplanned_text(const sweep::RunSpec& spec, const Gpu& gpu) {
  const std::int64_t unplanned = gpu.unplanned_bytes();
  const std::int64_t reserve = reserve_of(spec);
  if (unplanned <= reserve) return std::nullopt;
  return fmt::format("{} of GPU memory in use beyond the plan, the reserve of this GPU is {}",
                     sweep::gib_text(unplanned), sweep::gib_text(reserve));
}

// The time to issue a step would not show this: a full launch queue holds the host up.
std::optional<std::string> host_bound_text(const GpuWatch& seen,
                                           const runlog::StepStatistics& steps) {
  constexpr double kIdle = 0.1;
  constexpr double kMilli = 1e3;
  if (seen.idle_share.value_or(0) <= kIdle) return std::nullopt;
  std::string text = fmt::format(
      "the GPU waits for the host: it had nothing to do at {:.0f} % of the moments at which more "
      "came",
      100 * *seen.idle_share);
  if (steps.issue_median_s && steps.median_s) {
    text += fmt::format("; a step is handed over in {:.1f} ms and takes {:.1f} ms",
                        kMilli * *steps.issue_median_s, kMilli * *steps.median_s);
  }
  return text;
}

std::optional<std::string> shared_gpu_text(const GpuWatch& seen) {
  const std::int64_t others = seen.other_processes.value_or(0);
  if (others == 0) return std::nullopt;
  return fmt::format("{} other process{} computed on this GPU while steps were measured", others,
                     others == 1 ? "" : "es");
}

}  // namespace tessera::trainer
