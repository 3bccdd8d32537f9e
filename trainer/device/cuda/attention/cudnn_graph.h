// cuDNN's graph interface, as far as attention needs it: a tensor graph becomes descriptors, a GPU
// is asked for engines that carry it out, an engine becomes a plan that runs. By the functions that
// cudnn() found (libraries.h), without cuDNN's C++ front end.
//
// Not thread-safe. Descriptors stay alive as long as what was made of them: an operation graph
// outlives its configurations and plans.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/device/cuda/attention/cudnn_descriptor.h"
#include "trainer/device/cuda/attention/tensor_graph.h"

namespace tessera::trainer::cuda {

// Of tensors in memory, bytes: kernels load by so many.
inline constexpr std::int64_t kTensorAlignment = 16;

// The GPU that a plan is for: the one of a handle or, where there is none, of properties that are
// given. Such plans are made, up to loading their kernels, but cannot run.
struct Gpu {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
  int compute_capability = 0;  // 90 for 9.0
};

// A handle of the current GPU, for cudnnDestroy. Error(unsupported) where cuDNN itself is at fault:
// its parts are missing or do not belong together. Error(wrong_device) where it cannot use the GPU.
cudnnHandle_t create_cudnn_handle();

// Of cuDNN's own JSON text of a GPU's properties.
Descriptor device_properties(std::string_view json);

class OperationGraph {
 public:
  OperationGraph(const TensorGraph& graph, cudnnHandle_t handle);

  const Descriptor& descriptor() const { return graph_; }
  // In the order of TensorGraph::tensors and ops.
  std::span<const Descriptor> tensors() const { return tensors_; }
  std::span<const Descriptor> operations() const { return operations_; }

 private:
  std::vector<Descriptor> tensors_;
  std::vector<Descriptor> settings_;  // what an operation does, apart from on what
  std::vector<Descriptor> operations_;
  Descriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

struct Knob {
  cudnnBackendKnobType_t type{};
  std::int64_t value = 0;
  bool operator==(const Knob&) const = default;
};

// An engine with its settings, of one graph and GPU.
struct EngineConfig {
  Descriptor config;
  std::vector<Descriptor> parts;
  std::int64_t engine = 0;  // cuDNN's number
  std::vector<Knob> knobs;
  std::int64_t workspace_bytes = 0;
};

// "engine 6, KERNEL_CFG 26"
std::string to_text(const EngineConfig& config);

// cuDNN's choices, the best first; none, where it has none.
std::vector<EngineConfig> heuristic_configs(const OperationGraph& graph, const Gpu& gpu);

// One chosen by hand; nothing, where cuDNN does not have it.
std::optional<EngineConfig> fixed_config(const OperationGraph& graph, const Gpu& gpu,
                                         std::int64_t engine, std::span<const Knob> knobs);

struct Plan {
  Descriptor descriptor;
  std::int64_t workspace_bytes = 0;
};

struct PlanAttempt {
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  std::string message;       // cudnn_status_text
  std::optional<Plan> plan;  // on success
};

// Compiles kernels: up to seconds.
PlanAttempt try_plan(const EngineConfig& config, const Gpu& gpu);

// The addresses of one run.
Descriptor variant_pack(std::span<const Binding> bindings, void* workspace);

}  // namespace tessera::trainer::cuda
