// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/cpu_share.h"

#include <algorithm>
#include <fstream>
#include <system_error>

namespace tessera::trainer {

std::optional<CpuTimes> cpu_times(const std::filesystem::path& tasks) {
  constexpr double kNanosecond = 1e-9;
  CpuTimes sum;
  std::error_code fault;
  for (std::filesystem::directory_iterator it(tasks, fault), end; !fault && it != end;
       it.increment(fault)) {
    std::ifstream file(it->path() / "schedstat");
    double ran_ns = 0;
    double waited_ns = 0;
    if (!(file >> ran_ns >> waited_ns)) continue;  // the thread has ended, or no schedstat
    ++sum.threads;
    sum.ran_s += ran_ns * kNanosecond;
    sum.waited_s += waited_ns * kNanosecond;
  }
  return sum.threads > 0 ? std::optional(sum) : std::nullopt;
}

std::optional<double> cpu_share(const std::optional<CpuTimes>& before,
                                const std::optional<CpuTimes>& after) {
  if (!before || !after) return std::nullopt;
  const double ran = after->ran_s - before->ran_s;
  // A thread that ended in between is missing from the second sum, hence the maximum with 0.
  const double waited = std::max(0.0, after->waited_s - before->waited_s);
  if (ran + waited < kLeastThreadSeconds * after->threads) return std::nullopt;
  return ran / (ran + waited);
}

}  // namespace tessera::trainer
