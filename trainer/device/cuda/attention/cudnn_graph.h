// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph interface, as far as attention needs it: a tensor graph becomes descriptors, cuDNN
// offers engines for it on a GPU, an engine becomes a plan that runs. It calls the functions that
// cudnn() found (libraries.h), without cuDNN's C++ front end.
//
// Not thread-safe. Descriptors live as long as what was made of them: an operation graph outlives
// its configurations and plans.
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

// Alignment of tensors in memory, in bytes: kernels load 16 bytes at once.
inline constexpr std::int64_t kTensorAlignment = 16;

// The GPU of a plan: that of a handle or, without a handle, one described by properties. Plans of
// the latter are made, up to loading their kernels, but cannot run.
struct Gpu {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
  int compute_capability = 0;  // 90 for 9.0
};

// Returns a handle of the current GPU, for cudnnDestroy. Error(unsupported) if cuDNN itself is at
// fault: its parts are missing or do not belong together. Error(wrong_device) if it cannot use the
// GPU.
cudnnHandle_t create_cudnn_handle();

// Parses cuDNN's own JSON text of a GPU's properties.
Descriptor device_properties(std::string_view json);

class OperationGraph {
 public:
  OperationGraph(const TensorGraph& graph, cudnnHandle_t handle);

  const Descriptor& descriptor() const { return graph_; }
  // Descriptors in the order of TensorGraph::tensors.
  std::span<const Descriptor> tensors() const { return tensors_; }
  std::span<const Descriptor> operations() const { return operations_; }

 private:
  std::vector<Descriptor> tensors_;
  std::vector<Descriptor> settings_;  // each operation's parameters
  std::vector<Descriptor> operations_;
  Descriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

struct Knob {
  cudnnBackendKnobType_t type{};
  std::int64_t value = 0;
  bool operator==(const Knob&) const = default;
};

// An engine with its knobs, for one graph and GPU.
struct EngineConfig {
  Descriptor config;
  std::vector<Descriptor> parts;
  std::int64_t engine = 0;  // cuDNN's engine index
  std::vector<Knob> knobs;
  std::int64_t workspace_bytes = 0;
};

// Returns "engine 6, KERNEL_CFG 26".
std::string to_text(const EngineConfig& config);

// Returns cuDNN's choices, the best first. Empty if it has none.
std::vector<EngineConfig> heuristic_configs(const OperationGraph& graph, const Gpu& gpu);

// Returns a configuration chosen by hand. Nothing if cuDNN does not have it.
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

// Compiles the engine's kernels, which takes up to seconds.
PlanAttempt try_plan(const EngineConfig& config, const Gpu& gpu);

// The addresses of one run: cuDNN's variant pack.
Descriptor variant_pack(std::span<const Binding> bindings, void* workspace);

}  // namespace tessera::trainer::cuda
