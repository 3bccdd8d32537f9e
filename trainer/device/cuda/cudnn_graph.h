// cuDNN's graph interface, as far as attention needs it: a tensor graph becomes descriptors, a GPU
// is asked for engines that carry it out, an engine becomes a plan that runs. By the functions that
// cudnn() found (libraries.h), without cuDNN's C++ front end.
//
// What cuDNN refuses without saying that a graph or GPU is unsupported is Error(failed) with its
// status and its own last message. Not thread-safe. Descriptors stay alive as long as what was made
// of them: an operation graph outlives its configurations and plans.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/device/cuda/tensor_graph.h"

namespace tessera::trainer::cuda {

// Of tensors in memory, bytes: kernels load by so many.
inline constexpr std::int64_t kTensorAlignment = 16;

// "CUDNN_STATUS_...: last message", in one line.
std::string cudnn_status_text(cudnnStatus_t status);
// Error(failed): what, and the text above.
void check_cudnn(cudnnStatus_t status, std::string_view what);
// Of the kind that says that something is not supported, not that it failed.
bool is_unsupported(cudnnStatus_t status);

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, std::int64_t value);
  void set(cudnnBackendAttributeName_t name, bool value);
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  void set(cudnnBackendAttributeName_t name, cudnnHandle_t value);
  void set(cudnnBackendAttributeName_t name, const Descriptor& value);

  cudnnStatus_t try_finalize();
  void finalize();

  // How many values there are; at most `count` of them are stored.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, void* values) const;
  std::int64_t get_integer(cudnnBackendAttributeName_t name) const;

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptorType_t type_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// The GPU that a plan is for: the one of a handle or, where there is none, of properties that are
// given. Such plans are made, up to loading their kernels, but cannot run.
struct Gpu {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
  int compute_capability = 0;  // 90 for 9.0
};

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
