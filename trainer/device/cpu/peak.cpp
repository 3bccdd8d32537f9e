// SPDX-License-Identifier: Apache-2.0
// The rate of plain GEMMs, the peak that a CPU's MFU is measured against.
#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/text.h"
#include "trainer/device/device.h"
#include "trainer/device/random.h"

namespace tessera::trainer {
namespace {

// Returns [n, n] normal numbers that repeat after a period: as many different ones would take as
// long to make as the GEMMs.
std::vector<float> random_matrix(int n, std::uint64_t seed) {
  constexpr std::size_t kPeriod = 100002;  // no two rows are alike
  std::vector<float> matrix(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < std::min(kPeriod, matrix.size()); i += 2) {
    const auto normal = normal_pair(seed, i / 2);
    matrix[i] = static_cast<float>(normal[0]);
    matrix[i + 1] = static_cast<float>(normal[1]);
  }
  for (std::size_t i = kPeriod; i < matrix.size(); ++i) matrix[i] = matrix[i - kPeriod];
  return matrix;
}

// Returns the CPU time of all threads of this process.
double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

std::string GemmPeak::source(int threads) const {
  std::string text = "measured: f32 GEMM, " + counted(threads, "thread");
  if (!is_undisturbed()) text += fmt::format(", with {:.0f} % of their CPU time", 100 * cpu_share);
  return text;
}

GemmPeak measure_gemm_peak(int threads, double seconds) {
  if (threads < 1) {
    throw Error(ExitCode::internal, "measure_gemm_peak", fmt::format("{} threads", threads));
  }
  openblas_set_num_threads(threads);
  constexpr int kSizes[] = {1024, 2048, 4096};
  // Skips sizes whose GEMM would take longer: few threads are as fast at smaller sizes, and the
  // measurement needs several rounds in case others disturb one.
  const double longest_s = seconds / 4;
  std::vector<float> a, b, d;
  double best = 0;
  double alone_s = 0;  // one thread filled matrices, the others had no work
  double alone_cpu_s = 0;
  const double cpu_start = cpu_seconds();
  const double start = monotonic_seconds();
  // Each size runs once untimed, then the sizes take turns until the time is over, so that a burst
  // or a drop of the clock meets all of them.
  for (bool first = true; first || monotonic_seconds() - start < seconds; first = false) {
    for (const int n : kSizes) {
      const double flops = 2.0 * n * n * static_cast<double>(n);
      if (best > 0 && flops * 1e-12 / best > longest_s) continue;
      const std::size_t elements = static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
      if (a.size() < elements) {
        const double cpu_before = cpu_seconds();
        const double before = monotonic_seconds();
        a = random_matrix(n, 1);
        b = random_matrix(n, 2);
        d.assign(elements, 0);
        alone_cpu_s += cpu_seconds() - cpu_before;
        alone_s += monotonic_seconds() - before;
      }
      const int repeats = first ? 2 : 1;
      for (int i = 0; i < repeats; ++i) {
        const double begin = monotonic_seconds();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1.0F, a.data(), n, b.data(),
                    n, 0.0F, d.data(), n);
        const double elapsed = monotonic_seconds() - begin;
        if (i > 0 || !first) best = std::max(best, flops / elapsed * 1e-12);
      }
      if (!first && monotonic_seconds() - start >= seconds) break;
    }
  }
  const double wanted = (monotonic_seconds() - start - alone_s) * threads;
  const double got = cpu_seconds() - cpu_start - alone_cpu_s;
  return {.tflops = best, .cpu_share = std::min(1.0, got / wanted)};
}

}  // namespace tessera::trainer
