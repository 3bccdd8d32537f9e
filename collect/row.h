// SPDX-License-Identifier: Apache-2.0
// One row of the results: what a run reports, and the figures computed from it.
//
// Absent = not measured, not known or not applicable; `reason` says why where a figure could be
// expected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "collect/run_state.h"
#include "lib/hardware/catalogue.h"

namespace tessera::collect {

using sweep::Point;

// What a reader must know before comparing the row (docs/collect.md).
enum class Mark : std::uint8_t {
  partial,     // cut short, or fewer than 5 steps measured
  shared,      // other work used the machine or GPU, during the run or while its peak was measured
  busy,        // the run's threads had a CPU less than 90 % of the time that they wanted one
  throttled,   // the device reduced its clock
  assumed,     // facts that the log lacks were given by a person
  emulated,    // the device has no units for the precision
  stale,       // a newer attempt, of another build, did not end ok
  above_peak,  // MFU or HFU above 100 %: the peak is too low
};

struct Row {
  runlog::Status status = runlog::Status::unknown;
  std::string reason;
  std::string project, run, id;
  runlog::Facts facts;
  runlog::Footer footer;
  std::vector<Mark> marks;  // in the order above
  // What was asked for: of the header, the specification or the ledger. Of a dropped point without
  // its model.
  std::optional<sweep::Point> point;

  std::string model;  // built-in name if the shape is that model's, else custom(<parameters>)
  std::string gpu;    // catalogue name of the device found, else as the driver names it, else asked
  std::optional<double> tokens_per_s, samples_per_s, tokens_per_s_per_gpu;
  std::optional<std::int64_t> global_batch_tokens;

  std::optional<double> peak_tflops;
  std::string peak_source;
  std::string no_mfu;  // why MFU is empty though tokens/s is there
  std::string flops_convention;
  std::optional<double> flops_per_token, model_tflops;  // the latter per second and device
  std::optional<double> mfu_pct, hfu_pct, mfu_causal_pct, hfu_executed_pct, hfu_recompute_pct;
  std::optional<double> gemm_pct, data_wait_pct, comm_exposed_pct, cpu_share_pct, gpu_hours;

  int attempt = 0;   // the one whose figures these are
  int attempts = 0;  // of all repeats
  int repeats_ok = 0;
  int repeats_asked = 1;
  std::optional<double> repeat_spread_pct;  // (fastest - slowest) / median tokens/s
  std::optional<double> queue_s;
  std::string log;             // path of the log
  std::string engine, reader;  // whose log it is, and who read it

  double model_size = 0;  // parameters without the part that depends on seq_len: order only

  // Other runs may have used its machine, or other processes did use its GPU.
  bool has_company() const {
    return facts.shared_with.value_or(0) > 0 || footer.other_processes.value_or(0) > 0;
  }
};

// The catalogues a peak may come from: a user's own entries, then what the log says, then the
// built-in entries.
struct Catalogues {
  hardware::Catalogue user;
  hardware::Catalogue built_in;
};

// "7b" if `label` is a built-in model of exactly this shape, else "custom(6.66b)"; empty if the
// shape is not known.
std::string model_name(const std::optional<std::string>& label,
                       const std::optional<model::Shape>& shape,
                       const std::optional<std::int64_t>& n_params);

// The shape of a built-in model, or nullptr.
const model::Shape* built_in_shape(const std::string& name);

// The peak was measured while something disturbed it: it is too low.
bool peak_is_disturbed(const runlog::Facts& facts);

// The row of one run; repeats are put together by aggregate().
Row make_row(const Run& run, const RunOutcome& outcome, const Catalogues& catalogues);

}  // namespace tessera::collect

namespace tessera {
template <>
struct Names<collect::Mark> {
  using enum collect::Mark;
  static constexpr std::pair<collect::Mark, std::string_view> table[] = {
      {partial, "partial"}, {shared, "shared"},     {busy, "busy"},   {throttled, "throttled"},
      {assumed, "assumed"}, {emulated, "emulated"}, {stale, "stale"}, {above_peak, "above-peak"}};
};
}  // namespace tessera
