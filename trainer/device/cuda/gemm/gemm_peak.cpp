// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_peak.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/memory/scratch.h"
#include "trainer/device/cuda/libraries/runtime.h"

namespace tessera::trainer::cuda {

namespace {

constexpr std::int64_t kSizes[] = {4096, 8192};

GemmShape square(std::int64_t n, Precision precision) {
  GemmShape shape;
  shape.m = shape.n = shape.k = n;
  shape.lda = shape.ldb = shape.ldd = n;
  shape.in = shape.out = is_f32(precision) ? DType::f32 : DType::bf16;
  shape.tf32 = precision == Precision::tf32;
  return shape;
}

// Returns the FLOP/s of GEMMs of one size, measured for about `seconds`.
double rate(const GemmShape& shape, double seconds, GemmPlans& plans, GemmTrials& trials,
            cudaStream_t stream) {
  const std::span<std::byte> memory = trials.acquire(gemm_trial_bytes(shape, trials.l2_bytes()));
  const std::vector<GemmOperands> sets = gemm_operand_sets(shape, memory, trials.l2_bytes());
  if (sets.empty()) return 0;
  trials.fill_with_random(memory, shape.in);
  std::size_t turn = 0;
  const auto launch = [&](int count) {
    return trials.seconds([&] {
      for (int i = 0; i < count; ++i) plans.run(shape, sets[turn++ % sets.size()], stream);
    });
  };
  constexpr int kFirst = 3;
  launch(1);
  const double one = launch(kFirst) / kFirst;
  const int count = std::max(kFirst, static_cast<int>(std::lround(seconds / one)));
  const double taken = launch(count) / count;
  const auto n = static_cast<double>(shape.m);
  return 2 * n * n * n / taken;
}

}  // namespace

double measure_gemm_tflops(Precision precision, double seconds, const GemmOptions& options,
                           cudaStream_t stream) {
  GemmPlans plans(cublas_lt(), precision == Precision::tf32);
  const DeviceMemory workspace = device_memory(memory::kGemmWorkspaceBytes);
  const auto trials = gpu_trials(stream, {});
  double best = 0;
  for (const std::int64_t n : kSizes) {
    const GemmShape shape = square(n, precision);
    plans.prepare({&shape, 1},
                  {workspace.get(), static_cast<std::size_t>(memory::kGemmWorkspaceBytes)}, options,
                  options.deterministic ? nullptr : trials.get(), stream);
    best = std::max(best, rate(shape, seconds / std::size(kSizes), plans, *trials, stream));
    trials->release();
  }
  constexpr double kTera = 1e12;
  return best / kTera;
}

GpuChoice gpu_choice(const GemmChoice& choice) {
  GpuChoice line{.op = "gemm",
                 .shape = to_text(choice.shape),
                 .choice = fmt::format("algorithm {} tile {} stages {} split {}", choice.algorithm,
                                       choice.tile, choice.stages, choice.split_k),
                 .from = "first",
                 .seconds = {}};
  constexpr double kMicro = 1e-6;
  if (choice.us > 0) line.seconds = kMicro * choice.us;
  switch (choice.source) {
    case GemmSource::first:
      break;
    case GemmSource::timed:
      line.from = fmt::format("timed, number {} of {}", choice.index + 1, choice.candidates);
      break;
    case GemmSource::cached:
      line.from = "cached";
      break;
    case GemmSource::next:
      line.from = fmt::format("number {} of {}, in place of one that is refused at its launch",
                              choice.index + 1, choice.candidates);
      break;
  }
  return line;
}

}  // namespace tessera::trainer::cuda
