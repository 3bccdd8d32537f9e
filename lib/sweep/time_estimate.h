// SPDX-License-Identifier: Apache-2.0
// How long a run of a point will take: for its time limit, and for the GPU-hours of a sweep before
// anything is submitted.
//
// Everything here is pure. docs/formulas.md, "Run time", derives it; times are in seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lib/hardware/catalogue.h"
#include "lib/point/point.h"
#include "lib/sweep/published_rows.h"

namespace tessera::sweep {

// MFU of a GPU that no published row is near to, and of a CPU.
inline constexpr double kAssumedGpuMfu = 0.35;
inline constexpr double kAssumedCpuMfu = 0.5;

// A run may train this many times slower than estimated and still end within its limit: published
// rows are the best of their kind, and a run may have an unfavourable microbatch.
inline constexpr double kLimitFactor = 3;
inline constexpr std::int64_t kLeastLimit_s = 5 * std::int64_t{60};
// Where nothing is known, neither of the run nor of the cluster.
inline constexpr std::int64_t kUnknownLimit_s = std::int64_t{60} * 60;
inline constexpr std::int64_t kMostLimit_s = 365 * std::int64_t{24} * 60 * 60;

// Steps that a run with a profile trains behind its measured ones.
inline constexpr std::int64_t kProfileSteps = 4;

// What an estimate rests on.
struct TimeFacts {
  const hardware::Catalogue* catalogue = nullptr;  // not owned; needed for points on a GPU
  std::span<const PublishedRow> rows;              // published_rows(); none: 35 % is assumed
  std::int64_t startup_s = 300;                    // of the cluster file: until the first step
  std::optional<std::int64_t> max_time_s;          // likewise, time.max
  std::optional<double> cpu_peak_tflops;           // measured, of one device: a rank's threads
  bool profile = false;
};

struct Estimate {
  double mfu = 0;  // assumed, a fraction of the peak
  double step_s = 0;
  std::int64_t steps = 0;  // trained in all: warm-up, measured and profiled
  double seconds = 0;      // startup and steps, no margin
};

struct RunTime {
  std::optional<Estimate> estimate;
  // "41.25 % MFU, of the published 70b/2048 on 512 h100_80gb", "35 % MFU assumed", or why there is
  // no estimate: "no estimate: GPU 'x' is not in the catalogue".
  std::string source;
  // startup_s + kLimitFactor x the steps' time, in whole minutes; at least kLeastLimit_s. Without
  // an estimate the cluster's longest, or kUnknownLimit_s. Never above max_time_s or kMostLimit_s.
  std::int64_t time_limit_s = 0;
  bool limit_cut = false;  // the estimate asks for more than max_time_s or kMostLimit_s
  std::int64_t gpus = 0;   // 0 on a CPU
  bool published = false;  // there is an estimate, by the nearest published row
};

// `point` as parse_point accepts it.
RunTime estimate_time(const Point& point, const TimeFacts& facts);

// Steps that a run trains if each takes step_s: those asked for on a CPU or if they are exact, else
// at least 3 steps and 5 s of warm-up, then 10 steps and 15 s measured, 2,000 in all unless more
// are asked for (docs/formats.md, "Steps"). The trainer may issue two steps more before it knows
// that it has measured enough.
std::int64_t trained_steps(const Point& point, double step_s);

// "13 min, 30 steps of 16.3 s, 41.25 % MFU, of the published ...; limit 00:30:00"
std::string describe(const RunTime& time);

struct GpuHours {
  double hours = 0;          // of the runs with an estimate
  double limit_hours = 0;    // if every run, those too without an estimate, takes all of its limit
  std::int64_t unknown = 0;  // runs on GPUs without an estimate
};

// GPU-hours of `repeats` runs of each point; points on a CPU count nothing.
GpuHours gpu_hours(std::span<const RunTime> times, std::int64_t repeats);

}  // namespace tessera::sweep
