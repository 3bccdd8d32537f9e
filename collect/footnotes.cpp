// SPDX-License-Identifier: Apache-2.0
#include "collect/footnotes.h"

namespace tessera::collect {

namespace {

// What ran beside the run, and what ran beside the measurement of its peak, are two things to know.
constexpr std::string_view kSharedPeak = "shared-peak";

constexpr Footnote kFootnotes[] = {
    {"partial", "cut short, or fewer than 5 steps measured: the figures are of few steps."},
    {"shared",
     "other work used the same machine or GPU during the run: it may be slower than alone."},
    {kSharedPeak,
     "other work used the same machine while the peak was measured: the peak is too low, and MFU "
     "and HFU are too high. Model TFLOP and throughput do not depend on it."},
    {"busy",
     "its threads waited for a CPU more than a tenth of the time (column `cpu_share_pct` of the "
     "CSV): other work took it, a quota, or there were more threads than CPUs. It is slower than "
     "alone."},
    {"throttled", "the device lowered its clock (column `throttled` of the CSV)."},
    {"assumed", "facts that the log lacks were given by hand."},
    {"emulated", "the device has no units for this precision; it is divided by the fp32 peak."},
    {"stale", "a newer attempt, of another build, did not end ok."},
    {"above-peak",
     "not a utilization: nothing exceeds its peak, so the peak that MFU and HFU are divided by "
     "is too low. Do not compare them; Model TFLOP and throughput do not depend on it."},
};

}  // namespace

std::span<const Footnote> footnotes() {
  return kFootnotes;
}

std::vector<std::string_view> footnotes_of(const Row& row) {
  std::vector<std::string_view> names;
  for (const Mark mark : row.marks) {
    if (mark != Mark::shared) {
      names.push_back(to_text(mark));
      continue;
    }
    if (row.has_company() || !peak_is_disturbed(row.facts)) names.push_back(to_text(mark));
    if (peak_is_disturbed(row.facts)) names.push_back(kSharedPeak);
  }
  if (!row.no_mfu.empty()) names.emplace_back("no-mfu");
  return names;
}

bool has_figures(const Row& row) {
  return row.status == runlog::Status::ok || row.status == runlog::Status::partial;
}

}  // namespace tessera::collect
