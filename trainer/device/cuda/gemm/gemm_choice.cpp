// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::trainer::cuda {

namespace {

// A sample's least duration: CUDA events have a resolution of half a microsecond.
constexpr double kSampleSeconds = 200e-6;
constexpr double kMostLaunches = 100;
constexpr int kLeastRounds = 3;
constexpr int kMostRounds = 25;
constexpr double kTooSlowFactor = 1.5;  // times the best estimate: not timed further

bool is_time(double seconds) {
  return std::isfinite(seconds) && seconds > 0;
}

// One timing of all candidates: estimate each, drop the slow ones and those that the budget cannot
// pay for, then time the rest in rounds.
class Race {
 public:
  Race(std::size_t count, double budget_seconds, const GemmStopwatch& run)
      : budget_(budget_seconds), run_(run), timings_(count), estimates_(count) {}

  std::vector<GemmTiming> result() {
    estimate();
    if (runners_.empty()) return std::move(timings_);
    drop_slow();
    drop_unaffordable();
    for (int round = 0; round < kMostRounds && !runners_.empty(); ++round) {
      if (round >= kLeastRounds && spent_ + round_seconds() > budget_) break;
      run_round(static_cast<std::size_t>(round));
    }
    return std::move(timings_);
  }

 private:
  // Returns the seconds of all launches; NaN if the candidate fails or has failed before.
  double run(std::size_t candidate, std::int64_t launches) {
    if (timings_[candidate].failed) return std::numeric_limits<double>::quiet_NaN();
    const std::optional<double> seconds = run_(candidate, launches);
    if (!seconds) {
      timings_[candidate].failed = true;
      return std::numeric_limits<double>::quiet_NaN();
    }
    if (is_time(*seconds)) spent_ += *seconds;
    return *seconds;
  }

  // The first launch loads the kernel and does not count.
  void estimate() {
    for (std::size_t i = 0; i < timings_.size(); ++i) {
      run(i, 1);
      estimates_[i] = run(i, 1);
      if (is_time(estimates_[i])) runners_.push_back(i);
    }
  }

  double best() const {
    double best = std::numeric_limits<double>::infinity();
    for (const std::size_t i : runners_) best = std::min(best, estimates_[i]);
    return best;
  }

  // A sample is as many launches of the best candidate as last kSampleSeconds.
  void drop_slow() {
    const double limit = kTooSlowFactor * best();
    const std::size_t first = runners_.front();
    std::erase_if(runners_, [&](std::size_t i) { return i != first && estimates_[i] > limit; });
    launches_ = static_cast<std::int64_t>(
        std::clamp(std::ceil(kSampleSeconds / best()), 1.0, kMostLaunches));
  }

  // Two candidates stay in any case, and the first one always does.
  void drop_unaffordable() {
    while (runners_.size() > 2 && spent_ + kLeastRounds * round_seconds() > budget_) {
      runners_.erase(std::max_element(
          runners_.begin() + 1, runners_.end(),
          [&](std::size_t a, std::size_t b) { return estimates_[a] < estimates_[b]; }));
    }
  }

  double round_seconds() const {
    double seconds = 0;
    for (const std::size_t i : runners_) seconds += estimates_[i] * static_cast<double>(launches_);
    return seconds;
  }

  // Each round begins with another candidate, so that a GPU that grows warm slows all alike.
  void run_round(std::size_t round) {
    for (std::size_t turn = 0; turn < runners_.size(); ++turn) {
      const std::size_t i = runners_[(turn + round) % runners_.size()];
      const double seconds = run(i, launches_);
      if (!timings_[i].failed)
        timings_[i].seconds.push_back(seconds / static_cast<double>(launches_));
    }
    std::erase_if(runners_, [&](std::size_t i) { return timings_[i].failed; });
  }

  double budget_;
  const GemmStopwatch& run_;
  std::vector<GemmTiming> timings_;
  std::vector<double> estimates_;
  std::vector<std::size_t> runners_;
  std::int64_t launches_ = 1;
  double spent_ = 0;
};

}  // namespace

double median(const GemmTiming& timing) {
  std::vector<double> sorted;
  std::ranges::copy_if(timing.seconds, std::back_inserter(sorted), is_time);
  if (sorted.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(sorted);
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

std::optional<GemmDecision> choose(std::span<const GemmTiming> candidates) {
  std::optional<GemmDecision> best;
  double first_seconds = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double seconds = candidates[i].failed ? 0 : median(candidates[i]);
    if (!is_time(seconds)) continue;
    if (!best) {
      first_seconds = seconds;
      best = {.index = i, .seconds = seconds, .first_seconds = seconds};
    } else if (seconds <= first_seconds * (1 - kGemmGain) && seconds < best->seconds) {
      best = {.index = i, .seconds = seconds, .first_seconds = first_seconds};
    }
  }
  return best;
}

std::vector<GemmTiming> time_candidates(std::size_t count, double budget_seconds,
                                        const GemmStopwatch& run) {
  return Race(count, budget_seconds, run).result();
}

}  // namespace tessera::trainer::cuda
