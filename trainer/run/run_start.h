// What a run finds out before its first step: the peak that its MFU is of, whether its ranks have
// the same data and memory enough, and what a step costs.
#pragma once

#include <vector>

#include "lib/point/run_spec.h"
#include "lib/runlog/footer.h"
#include "trainer/data/run_data.h"
#include "trainer/run/ranks.h"
#include "trainer/run/records.h"
#include "trainer/train/engine.h"

namespace tessera::trainer {

// That of the specification, else measured now, for a second.
MeasuredPeak peak_of(const sweep::RunSpec& spec, int threads);

// Ranks that share a machine measure at once, so that their mean is what each has beside the
// others. Every rank calls it. Error(failed) if they read other data. `store`: null with one rank.
MeasuredPeak common_peak(MeasuredPeak peak, const RunData& data, const sweep::RunSpec& spec,
                         Store* store, const Place& place);

// Each rank's plan may fit its machine, and all of them not. Error(host_oom).
void require_memory(const Setup& setup, const std::vector<RankFacts>& ranks);

// Into the footer, by token.
void cost_of(const Engine& engine, const sweep::Point& point, runlog::Footer& footer);

}  // namespace tessera::trainer
