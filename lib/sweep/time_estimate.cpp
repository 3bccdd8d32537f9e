// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/time_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/numbers.h"
#include "lib/base/text.h"
#include "lib/flops/utilization.h"

namespace tessera::sweep {

namespace {

constexpr std::int64_t kMinute = 60;
constexpr double kHour = 3600;

// The trainer's rule for GPUs (docs/formats.md, "Steps"; trainer/train/pace.h).
constexpr std::int64_t kLeastWarmupSteps = 3;
constexpr std::int64_t kLeastMeasuredSteps = 10;
constexpr std::int64_t kMostSteps = 2000;
constexpr double kLeastWarmup_s = 5;
constexpr double kLeastMeasured_s = 15;

bool is_on_cpu(const Point& point) {
  return point.gpu == "cpu";
}

// Steps of step_s that last `seconds`, at most `most`.
std::int64_t steps_lasting(double seconds, double step_s, std::int64_t most) {
  const double steps = std::ceil(seconds / step_s);
  return steps < real(most) ? static_cast<std::int64_t>(steps) : most;
}

// What the device is taken to reach, and why; no peak: no estimate.
struct Rate {
  std::optional<double> peak_tflops;
  double mfu = 0;
  std::string source;
  bool published = false;
};

Rate cpu_rate(const TimeFacts& facts) {
  if (!facts.cpu_peak_tflops || !(*facts.cpu_peak_tflops > 0))
    return {std::nullopt, 0, "the CPU's peak is not measured"};
  return {facts.cpu_peak_tflops, kAssumedCpuMfu,
          fmt::format("{:.0f} % of the measured CPU peak assumed", 100 * kAssumedCpuMfu)};
}

Rate gpu_rate(const Point& point, const TimeFacts& facts) {
  const auto peak = hardware::peak(*facts.catalogue, point.gpu, point.precision);
  if (!peak.tflops) return {std::nullopt, 0, peak.text};
  const PublishedRow* row = nearest_row(point, facts.rows);
  if (row == nullptr)
    return {peak.tflops, kAssumedGpuMfu, fmt::format("{:.0f} % MFU assumed", 100 * kAssumedGpuMfu)};
  return {peak.tflops, row->mfu,
          fmt::format("{:.4g} % MFU, of the published {}/{} on {} {}", 100 * row->mfu, row->model,
                      row->seq_len, row->gpus, row->gpu),
          true};
}

// 0 where the sizes are beyond what can be counted.
double step_seconds(const Point& point, const Rate& rate) {
  const double positions = real(point.model.d_model) * real(point.seq_len);
  if (point.model.positions == model::Positions::learned &&
      positions >= real(std::numeric_limits<std::int64_t>::max()) / 2)
    return 0;
  const double flops = flops::model_flops_per_token(point.model, point.seq_len) *
                       real(point.seq_len) * real(point.global_batch);
  return flops / (real(point.gpus) * *rate.peak_tflops * 1e12 * rate.mfu);
}

// In whole minutes. `seconds` may be larger than any integer.
void set_limit(RunTime& time, double seconds, const TimeFacts& facts) {
  const std::int64_t most = std::min(facts.max_time_s.value_or(kMostLimit_s), kMostLimit_s);
  const double minutes = std::ceil(std::max(seconds, real(kLeastLimit_s)) / real(kMinute));
  const double whole = minutes * real(kMinute);
  time.limit_cut = whole > real(most);
  time.time_limit_s = time.limit_cut ? most : static_cast<std::int64_t>(whole);
}

// "4.1 ms", "16.3 s", "16 min", "3.4 h"
std::string rounded(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
  if (seconds < 2 * real(kMinute)) return fmt::format("{:.3g} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{:.0f} min", seconds / real(kMinute));
  return fmt::format("{:.3g} h", seconds / kHour);
}

}  // namespace

std::int64_t trained_steps(const Point& point, double step_s) {
  if (point.exact_steps || is_on_cpu(point)) return point.steps;
  const std::int64_t least_warmup = std::max(point.warmup, kLeastWarmupSteps);
  const std::int64_t least_measured = std::max(point.steps - point.warmup, kLeastMeasuredSteps);
  const std::int64_t most = std::max(kMostSteps, least_warmup + least_measured);
  // Where even the most steps are over too soon, both parts are shortened alike.
  const double share = kLeastWarmup_s / (kLeastWarmup_s + kLeastMeasured_s);
  const std::int64_t latest_warmup = std::clamp(static_cast<std::int64_t>(share * real(most)),
                                                least_warmup, most - least_measured);
  const std::int64_t warmup =
      std::max(least_warmup, steps_lasting(kLeastWarmup_s, step_s, latest_warmup));
  return warmup + std::max(least_measured, steps_lasting(kLeastMeasured_s, step_s, most - warmup));
}

RunTime estimate_time(const Point& point, const TimeFacts& facts) {
  RunTime time;
  time.gpus = is_on_cpu(point) ? 0 : point.gpus;
  Rate rate = is_on_cpu(point) ? cpu_rate(facts) : gpu_rate(point, facts);
  const double step_s = rate.peak_tflops ? step_seconds(point, rate) : 0;
  if (rate.peak_tflops && !(step_s > 0 && std::isfinite(step_s)))
    rate = {std::nullopt, 0, "its FLOPs are beyond what can be counted"};
  if (!rate.peak_tflops) {
    time.source = "no estimate: " + rate.source;
    set_limit(time, real(facts.max_time_s.value_or(kUnknownLimit_s)), facts);
    time.limit_cut = false;  // nothing asks for more
    return time;
  }
  Estimate estimate;
  estimate.mfu = rate.mfu;
  estimate.step_s = step_s;
  estimate.steps = trained_steps(point, estimate.step_s) + (facts.profile ? kProfileSteps : 0);
  const double training_s = real(estimate.steps) * estimate.step_s;
  estimate.seconds = real(facts.startup_s) + training_s;
  set_limit(time, real(facts.startup_s) + kLimitFactor * training_s, facts);
  time.estimate = estimate;
  time.source = rate.source;
  time.published = rate.published;
  return time;
}

std::string describe(const RunTime& time) {
  const std::int64_t minutes = time.time_limit_s / kMinute;
  const std::string limit =
      fmt::format("limit {:02}:{:02}:{:02}{}", minutes / 60, minutes % 60,
                  time.time_limit_s % kMinute, time.limit_cut ? " (the longest allowed)" : "");
  if (!time.estimate) return fmt::format("{}; {}", time.source, limit);
  return fmt::format("{}, {} of {}, {}; {}", rounded(time.estimate->seconds),
                     counted(time.estimate->steps, "step"), rounded(time.estimate->step_s),
                     time.source, limit);
}

GpuHours gpu_hours(std::span<const RunTime> times, std::int64_t repeats) {
  GpuHours sum;
  for (const RunTime& time : times) {
    if (time.gpus == 0) continue;
    const double runs_gpus = real(repeats) * real(time.gpus);
    sum.limit_hours += runs_gpus * real(time.time_limit_s) / kHour;
    if (time.estimate) {
      sum.hours += runs_gpus * time.estimate->seconds / kHour;
    } else {
      sum.unknown += repeats;
    }
  }
  return sum;
}

}  // namespace tessera::sweep
