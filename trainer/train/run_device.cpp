#include "trainer/train/run_device.h"

#include "lib/sweep/memory_need.h"
#include "trainer/train/accept.h"

namespace tessera::trainer {

namespace {

constexpr double kPeakSeconds = 1.0;
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
  // The name asked for is that of the device found where the driver's name was checked.
  peak.gpu = spec.expect.empty() ? "" : spec.point.gpu;
  if (spec.peak) peak.peak = *spec.peak;
  const double measured = gpu.measure_gemm_tflops(spec.point.precision, kPeakSeconds);
  if (measured > 0) peak.gemm_tflops = measured;
  return peak;
}

}  // namespace tessera::trainer
