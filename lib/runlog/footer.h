// SPDX-License-Identifier: Apache-2.0
// The last record of a run: how it ended and what it measured.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/runlog/facts.h"
#include "lib/runlog/record.h"
#include "lib/runlog/steps.h"

namespace tessera::runlog {

// What a profiled step's time went to, as shares of it. Streams overlap on a GPU, so the sum may
// exceed 1; on one stream it is 1.
struct Budget {
  double gemm = 0;
  double attention = 0;
  double memory_bound = 0;  // every other operation
  double optimizer = 0;     // all of the update
  double offload = 0;       // copies between host and device beside the computation
  double data_wait = 0;
  double other = 0;  // between operations
  bool operator==(const Budget&) const = default;
};

// Below this share of the CPU time that its threads wanted, a run's figures are of a busy machine.
inline constexpr double kBusyShare = 0.9;

struct Footer {
  Status status = Status::unknown;
  EndedBy ended_by = EndedBy::unknown;
  std::string reason;  // cut at 220 bytes; empty for ok
  int exit_code = 0;
  StepStatistics steps;
  std::optional<double> step_s_max_over_ranks;  // the slowest rank's median step
  std::string token_basis = "full";             // every position of every sequence counts
  std::optional<double> startup_s, wall_s;
  std::optional<std::int64_t> mem_peak_bytes;
  std::optional<double> comm_exposed_s, sm_clock_min_mhz, power_w_mean, temperature_c_max;
  std::vector<std::string> throttled;
  std::optional<std::int64_t> other_processes;  // most at a time on the GPU beside the run
  std::optional<double> flops_executed_per_token, flops_recompute_per_token;
  std::optional<double> cpu_share;  // of the measured steps, on a CPU: time on a CPU / wanted
  std::optional<Budget> budget;     // of a run with --profile
  std::string ended_utc;
};

// Fields of the records that a log ends with, in order: its row records, then the footer, which
// says how many they are (`rows`). Writer::write adds the common ones. A test builds the largest
// footer, which leaves 1,024 of 4,096 bytes free.
std::vector<std::pair<Kind, Json>> last_records(const Footer& footer, const Facts& facts);

// From a parsed footer record. Nothing if it is no footer, or names neither status nor row.
std::optional<Footer> parse_footer(const Json& record);
// How many row records stand before a footer; nothing of schema 1, whose footer holds the row.
std::optional<std::int64_t> rows_before(const Json& footer);

}  // namespace tessera::runlog
