// SPDX-License-Identifier: Apache-2.0
// The checks of a run before its first step: the peak that its MFU divides by, whether its ranks
// have the same data and enough memory, and what a step costs.
#pragma once

#include <vector>

#include "lib/point/run_spec.h"
#include "lib/runlog/footer.h"
#include "trainer/data/run_data.h"
#include "trainer/run/ranks.h"
#include "trainer/run/records.h"
#include "trainer/train/engine.h"

namespace tessera::trainer {

// Returns the specification's peak, or measures one for a second.
MeasuredPeak peak_of(const sweep::RunSpec& spec, int threads);

// Returns the mean of the peaks: ranks that share a machine measure at once, so the mean is what
// each has beside the others. Every rank calls it. Error(failed) if they read different data.
// `store`: null with one rank.
MeasuredPeak common_peak(MeasuredPeak peak, const RunData& data, const sweep::RunSpec& spec,
                         Store* store, const Place& place);

// Throws Error(host_oom) if a machine cannot hold the plans of all its ranks, even if it can hold
// each of them.
void require_memory(const Setup& setup, const std::vector<RankFacts>& ranks);

// Writes the cost of a token to the footer.
void cost_of(const Engine& engine, const sweep::Point& point, runlog::Footer& footer);

}  // namespace tessera::trainer
