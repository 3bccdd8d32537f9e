// SPDX-License-Identifier: Apache-2.0
// The records of a run before its steps, and the step record. Values are effective ones: what runs,
// not what was asked for.
#pragma once

#include <vector>

#include "lib/point/run_spec.h"
#include "lib/runlog/facts.h"
#include "lib/runlog/steps.h"
#include "trainer/data/run_data.h"
#include "trainer/device/gpu.h"
#include "trainer/run/ranks.h"
#include "trainer/train/engine.h"

namespace tessera::trainer {

using runlog::Json;

// The peak that MFU divides by, and what the device reached when measured.
struct MeasuredPeak {
  sweep::Peak peak;  // 0: none is known
  bool measured_here = false;
  std::string gpu = "cpu";            // catalogue name of the device found; empty: none
  std::optional<double> gemm_tflops;  // of a GPU, measured in this run
};

// `job`: the scheduler's id of the job, for specifications that could not know it.
Json header_fields(const sweep::RunSpec& spec, const std::string& job);
Json model_fields(const sweep::RunSpec& spec, const memory::Config& config);
Json effective_fields(const sweep::RunSpec& spec, const Engine& engine, int threads,
                      const Gpu* gpu);
// Members of the effective record for a run on a token file.
Json data_fields(const DataFacts& data);
// Returns one record for each node, in the order of nodes. `ranks` is in rank order.
std::vector<Json> host_fields(const std::vector<RankFacts>& ranks);
// Returns the software record in parts, because the environment may be long. Only variables of the
// allow-list are in it. gpu: null on a CPU.
std::vector<Json> software_fields(const DeviceInfo& device, const Gpu* gpu);
Json plan_fields(const Engine& engine, const Gpu* gpu);
// Members of the host record of a run on a GPU.
Json gpu_fields(const Gpu& gpu);
// Returns one event record for each kind of operation for which the GPU had a choice.
std::vector<Json> choice_events(const Gpu& gpu);
Json peak_fields(const MeasuredPeak& peak);
// Leaves out a loss or norm that is not finite.
Json step_fields(const runlog::StepSample& sample);

// Returns whether a software record may hold the variable: NCCL_*, OMP_* and so on. Other variables
// may be secrets.
bool may_be_recorded(std::string_view environment_variable);

}  // namespace tessera::trainer
