// The records of a run that come before its steps, and the step record itself. Values are effective
// ones: what runs, not what was asked for.
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

// What MFU divides by, and what the device was found to reach.
struct MeasuredPeak {
  sweep::Peak peak;  // 0: none is known
  bool measured_here = false;
  std::string gpu = "cpu";            // catalogue name of the device found; empty: has none
  std::optional<double> gemm_tflops;  // of a GPU, measured here
};

Json header_fields(const sweep::RunSpec& spec);
Json model_fields(const sweep::RunSpec& spec, const memory::Config& config);
Json effective_fields(const sweep::RunSpec& spec, const Engine& engine, int threads,
                      const Gpu* gpu);
// Members of the effective record for a run on a token file.
Json data_fields(const DataFacts& data);
// One record a node, in the order of nodes: `ranks` in rank order.
std::vector<Json> host_fields(const std::vector<RankFacts>& ranks);
// Parts of the software record: the environment may be long. Only variables of the allow-list.
// gpu: null on a CPU.
std::vector<Json> software_fields(const DeviceInfo& device, const Gpu* gpu);
Json plan_fields(const Engine& engine, const Gpu* gpu);
// Members of the host record of a run on a GPU.
Json gpu_fields(const Gpu& gpu);
// One event record for each kind of operation that the GPU had a choice for.
std::vector<Json> choice_events(const Gpu& gpu);
Json peak_fields(const MeasuredPeak& peak);
// A loss or norm that is not finite is left out.
Json step_fields(const runlog::StepSample& sample);

// True for what a software record may hold: NCCL_*, OMP_* and so on. Tokens leak otherwise.
bool may_be_recorded(std::string_view environment_variable);

}  // namespace tessera::trainer
