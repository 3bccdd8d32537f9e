// The last record of a run: how it ended and what it measured.
#pragma once

#include <optional>
#include <string>
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

// Fields of the footer record, `row` last; Writer::write adds the common ones. At most
// kMaxRecordBytes as a record (a test builds the largest).
Json footer_json(const Footer& footer, const Facts& facts);

// From a parsed footer record. Nothing if it is no footer or lacks status or row.
std::optional<std::pair<Footer, Facts>> parse_footer(const Json& record);

}  // namespace tessera::runlog
