// Which of several algorithms for a matrix product is taken: timing and rule, without a GPU in it.
//
// Candidates are in the order of the library's heuristics, which are right for most shapes; the
// first is left only for one that is clearly faster, so that noise alone changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tessera::trainer::cuda {

inline constexpr std::size_t kGemmCandidates = 8;
inline constexpr double kGemmGain = 0.02;  // less time than the first, as a share of its time
inline constexpr double kGemmBudgetSeconds = 0.3;  // of device time, for a shape

struct GemmTiming {
  std::vector<double> seconds;  // of a launch, one for each sample
  bool failed = false;          // the algorithm refused to run
};

// Of the samples that are finite and positive; NaN without any.
double median(const GemmTiming& timing);

struct GemmDecision {
  std::size_t index = 0;
  double seconds = 0;        // the chosen one's median
  double first_seconds = 0;  // that of the first candidate that runs
};

// The fastest by median, if it takes at least kGemmGain less than the first that runs, else that;
// of equally fast ones the earlier. Nothing if none runs or none was timed.
std::optional<GemmDecision> choose(std::span<const GemmTiming> candidates);

// Launches a candidate so often, back to back, and returns the seconds that all took together;
// nothing if it refuses.
using GemmStopwatch =
    std::function<std::optional<double>(std::size_t candidate, std::int64_t launches)>;

// Times that many candidates. Each is launched once to load it and once to estimate it; those that
// are far behind are then left alone. The others take turns, starting with another in each round,
// so that a GPU that grows warm slows all of them alike. A sample is as many launches as last long
// enough for a device's clock. Ends when the budget is spent, but not before three rounds; where
// three cost more than the budget, the slowest go without (never the first that runs).
std::vector<GemmTiming> time_candidates(std::size_t count, double budget_seconds,
                                        const GemmStopwatch& run);

}  // namespace tessera::trainer::cuda
