// SPDX-License-Identifier: Apache-2.0
// Autotuning of GEMMs: timing candidates and choosing one, without a GPU in it.
//
// Candidates are in the order of the library's heuristics, which are right for most shapes. Only a
// clearly faster candidate replaces the first, so that noise alone changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tessera::trainer::cuda {

inline constexpr std::size_t kGemmCandidates = 8;
inline constexpr double kGemmGain = 0.02;  // least gain over the first, as a share of its time
inline constexpr double kGemmBudgetSeconds = 0.3;  // of device time, for a shape

struct GemmTiming {
  std::vector<double> seconds;  // of a launch, one for each sample
  bool failed = false;          // the algorithm refused to run
};

// Returns the median of the finite positive samples; NaN if there are none.
double median(const GemmTiming& timing);

struct GemmDecision {
  std::size_t index = 0;
  double seconds = 0;        // the chosen one's median
  double first_seconds = 0;  // that of the first candidate that runs
};

// Returns the fastest candidate by median if it takes at least kGemmGain less than the first that
// runs, otherwise that first one. The earlier of equally fast ones wins. Nothing if none runs or
// none was timed.
std::optional<GemmDecision> choose(std::span<const GemmTiming> candidates);

// Launches a candidate `launches` times back to back and returns the seconds of all together.
// Nothing if it refuses.
using GemmStopwatch =
    std::function<std::optional<double>(std::size_t candidate, std::int64_t launches)>;

// Times `count` candidates. Each is launched once to load it and once to estimate it; those that
// are far behind are not timed further. The others take turns, each round starting with another
// one, so that a GPU that grows warm slows all of them alike. A sample has as many launches as the
// device's clock needs. Timing ends when the budget is spent, but not before three rounds; if three
// rounds cost more than the budget, the slowest are left out (never the first that runs).
std::vector<GemmTiming> time_candidates(std::size_t count, double budget_seconds,
                                        const GemmStopwatch& run);

}  // namespace tessera::trainer::cuda
