// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/run_start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/flops/utilization.h"
#include "lib/point/memory_need.h"

namespace tessera::trainer {

namespace {

constexpr double kCpuPeakSeconds = 1.0;

// Resets the peak of resident memory: the matrices of the peak's measurement are no memory of the
// training. If /proc does not allow it, the figure stays too high.
void forget_peak_resident() {
  const FileDescriptor file(::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  constexpr std::string_view kResetPeak = "5";
  if (file) [[maybe_unused]]
    const auto wrote = ::write(file.get(), kResetPeak.data(), 1);
}

}  // namespace

MeasuredPeak peak_of(const sweep::RunSpec& spec, int threads) {
  if (spec.peak) return {*spec.peak, false};
  const GemmPeak peak = measure_gemm_peak(threads, kCpuPeakSeconds);
  forget_peak_resident();
  sweep::Peak known{.tflops = peak.tflops, .source = peak.source(threads), .disturbed = {}};
  if (!peak.is_undisturbed()) known.disturbed = hardware::Disturbance::other_work;
  return {known, true};
}

MeasuredPeak common_peak(MeasuredPeak peak, const RunData& data, const sweep::RunSpec& spec,
                         Store* store, const Place& place) {
  const Json own{{"tflops", peak.peak.tflops},
                 {"data_tokens", data.file ? data.file->tokens : 0},
                 {"data_crc32", data.file ? data.file->crc32 : 0}};
  double sum = 0;
  int rank = 0;
  for (const std::string& text : exchange(store, place, "found", own.dump())) {
    const Json other = Json::parse(text);
    for (const char* key : {"data_tokens", "data_crc32"}) {
      if (other.at(key) == own.at(key)) continue;
      throw Error(
          ExitCode::failed, spec.point.data,
          fmt::format("rank {} reads another file of this name than rank {}", rank, place.rank),
          "the same file on all nodes");
    }
    sum += other.at("tflops").get<double>();
    ++rank;
  }
  if (!peak.measured_here || place.ranks == 1) return peak;
  peak.peak.tflops = sum / place.ranks;
  peak.peak.source += fmt::format(", mean of {} ranks", place.ranks);
  return peak;
}

void require_memory(const Setup& setup, const std::vector<RankFacts>& ranks) {
  const std::int64_t there = memory_of_rank(ranks);
  if (ranks.size() == 1 || there == 0) return;  // the engine checks its own plan
  const std::int64_t need = memory::plan(setup.memory).total_bytes();
  if (need <= there) return;
  throw Error(ExitCode::host_oom, "memory plan",
              fmt::format("{} are needed, a rank's part of its machine is {}",
                          sweep::gib_text(need), sweep::gib_text(there)),
              "fewer ranks a machine, a smaller microbatch_size or activation_checkpointing: full");
}

void cost_of(const Engine& engine, const sweep::Point& point, runlog::Footer& footer) {
  const StepCost cost = engine.step_cost();
  const auto tokens = static_cast<double>(engine.config().device_batch * engine.config().seq_len);
  footer.flops_executed_per_token = cost.executed / tokens;
  footer.flops_recompute_per_token =
      flops::model_flops_per_token(point.model, point.seq_len, flops::Convention::mosaic,
                                   model::parameter_count(point.model, point.seq_len) -
                                       memory::trained_count(engine.config())) +
      flops::recomputed_flops_per_token(
          point.model, point.seq_len,
          std::ranges::count(engine.memory().mask(), memory::Keep::input));
}

}  // namespace tessera::trainer
