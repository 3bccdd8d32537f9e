// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/attention/cudnn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lib/base/error.h"
#include "trainer/device/cuda/libraries/cudnn_library.h"
#include "trainer/device/cuda/libraries/libraries.h"

namespace tessera::trainer::cuda {

namespace {

// --- From our values to cuDNN's descriptors.
cudnnDataType_t data_type(Element element) {
  switch (element) {
    case Element::bf16:
      return CUDNN_DATA_BFLOAT16;
    case Element::f32:
      return CUDNN_DATA_FLOAT;
    case Element::i32:
      return CUDNN_DATA_INT32;
    case Element::boolean:
      return CUDNN_DATA_BOOLEAN;
  }
  return CUDNN_DATA_FLOAT;
}

cudnnPointwiseMode_t pointwise_mode(Step step) {
  switch (step) {
    case Step::add:
      return CUDNN_POINTWISE_ADD;
    case Step::subtract:
      return CUDNN_POINTWISE_SUB;
    case Step::multiply:
      return CUDNN_POINTWISE_MUL;
    case Step::divide:
      return CUDNN_POINTWISE_DIV;
    case Step::exponential:
      return CUDNN_POINTWISE_EXP;
    case Step::logarithm:
      return CUDNN_POINTWISE_LOG;
    case Step::copy:
      return CUDNN_POINTWISE_IDENTITY;
    case Step::index:
      return CUDNN_POINTWISE_GEN_INDEX;
    case Step::greater_equal:
      return CUDNN_POINTWISE_CMP_GE;
    case Step::select:
      return CUDNN_POINTWISE_BINARY_SELECT;
    case Step::matmul:
    case Step::maximum:
    case Step::sum:
    case Step::reinterpret:
      break;
  }
  throw Error(ExitCode::internal, "cuDNN", "not an operation by elements");
}

// Masks and indices are computed in their own types, everything else in f32.
cudnnDataType_t compute_type(Step step) {
  if (step == Step::index) return CUDNN_DATA_INT32;
  return step == Step::greater_equal ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
}

// Describes a tensor. A virtual one is never in memory; one by value is read from the host.
Descriptor tensor_descriptor(const GraphTensor& t) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(t.element));
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::ssize(t.dims), t.dims.data());
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::ssize(t.strides), t.strides.data());
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, t.id);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kTensorAlignment);
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.place == Place::inner);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, t.place == Place::host);
  d.finalize();
  return d;
}

// The parameters of an operation. The descriptor of the operation refers to them.
Descriptor matmul_setting() {
  Descriptor d(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  d.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  d.finalize();
  return d;
}

Descriptor reduction_setting(Step step) {
  Descriptor d(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnReduceTensorOp_t kind =
      step == Step::maximum ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD;
  d.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
  d.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  d.finalize();
  return d;
}

Descriptor pointwise_setting(const GraphOp& op) {
  Descriptor d(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnPointwiseMode_t mode = pointwise_mode(op.step);
  d.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  d.set(CUDNN_ATTR_POINTWISE_MATH_PREC, compute_type(op.step));
  if (op.step == Step::index) d.set(CUDNN_ATTR_POINTWISE_AXIS, op.axis);
  d.finalize();
  return d;
}

// New descriptors of the type, for cuDNN to fill in.
std::vector<Descriptor> room_for(cudnnBackendDescriptorType_t type, std::int64_t count) {
  std::vector<Descriptor> room;
  for (std::int64_t i = 0; i < count; ++i) room.emplace_back(type);
  return room;
}

// cuDNN fills descriptors that the caller has made, at most `most` of them.
std::vector<Descriptor> get_descriptors(const Descriptor& from, cudnnBackendAttributeName_t name,
                                        cudnnBackendDescriptorType_t type, std::int64_t most) {
  std::vector<Descriptor> found = room_for(type, most);
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& d : found) raw.push_back(d.raw());
  const std::int64_t count =
      from.get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, static_cast<void*>(raw.data()));
  found.erase(found.begin() + std::clamp<std::int64_t>(count, 0, most), found.end());
  return found;
}

// --- Engines: cuDNN's index, its knobs, its workspace.
void read_workspace(EngineConfig& config) {
  config.workspace_bytes = config.config.get_integer(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
}

// Reads the engine, knobs and workspace of a configuration that cuDNN has made.
EngineConfig read_config(Descriptor descriptor) {
  constexpr std::int64_t kMostKnobs = 64;
  EngineConfig config{std::move(descriptor), {}, 0, {}, 0};
  const std::vector<Descriptor> engine = get_descriptors(config.config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                         CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  config.engine = engine.at(0).get_integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  for (const Descriptor& choice :
       get_descriptors(config.config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                       CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, kMostKnobs)) {
    Knob knob;
    choice.get(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob.type);
    knob.value = choice.get_integer(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    config.knobs.push_back(knob);
  }
  read_workspace(config);
  return config;
}

// Returns "TILE_M"; "knob 7" for a type without a name here.
std::string knob_name(cudnnBackendKnobType_t type) {
  switch (type) {
    case CUDNN_KNOB_TYPE_TILE_M:
      return "TILE_M";
    case CUDNN_KNOB_TYPE_TILE_N:
      return "TILE_N";
    case CUDNN_KNOB_TYPE_TILE_CGA_M:
      return "TILE_CGA_M";
    case CUDNN_KNOB_TYPE_KERNEL_CFG:
      return "KERNEL_CFG";
    case CUDNN_KNOB_TYPE_STAGES:
      return "STAGES";
    case CUDNN_KNOB_TYPE_STREAM_K:
      return "STREAM_K";
    default:
      return fmt::format("knob {}", static_cast<int>(type));
  }
}

// Returns whether the fault is in cuDNN's installation rather than in the GPU.
bool is_of_parts(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH ||
         status == CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED ||
         status == CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE;
}

}  // namespace

cudnnHandle_t create_cudnn_handle() {
  cudnnHandle_t handle = nullptr;
  const cudnnStatus_t status = cudnn().cudnnCreate(&handle);
  if (status == CUDNN_STATUS_SUCCESS) return handle;
  if (is_of_parts(status)) {
    throw Error(ExitCode::unsupported, cudnn().path.string(),
                fmt::format("cuDNN {} cannot use its parts: {}{}", cudnn().version,
                            cudnn_status_text(status), cudnn_faults(cudnn().path)),
                fmt::format("all libcudnn_* of this version in {}, and LD_LIBRARY_PATH without "
                            "another cuDNN",
                            cudnn().path.parent_path().string()));
  }
  throw Error(ExitCode::wrong_device, fmt::format("cuDNN {}", cudnn().version),
              fmt::format("cannot use the GPU: {}", cudnn_status_text(status)));
}

Descriptor device_properties(std::string_view json) {
  Descriptor d(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  d.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(json), json.data());
  d.finalize();
  return d;
}

// Each operation is a descriptor that refers to its tensors and, unless it only reinterprets
// memory, to a descriptor of its parameters. The graph refers to all operations.
OperationGraph::OperationGraph(const TensorGraph& graph, cudnnHandle_t handle) {
  for (const GraphTensor& t : graph.tensors) tensors_.push_back(tensor_descriptor(t));
  for (const GraphOp& op : graph.ops) {
    const auto in = [&](std::size_t i) -> const Descriptor& { return tensors_[op.in.at(i)]; };
    const Descriptor& out = tensors_[op.out];
    switch (op.step) {
      case Step::matmul: {
        settings_.push_back(matmul_setting());
        Descriptor d(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
        d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, settings_.back());
        d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, in(0));
        d.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, in(1));
        d.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
        operations_.push_back(std::move(d));
        break;
      }
      case Step::maximum:
      case Step::sum: {
        settings_.push_back(reduction_setting(op.step));
        Descriptor d(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
        d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, settings_.back());
        d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, in(0));
        d.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
        operations_.push_back(std::move(d));
        break;
      }
      case Step::reinterpret: {
        Descriptor d(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
        d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, in(0));
        d.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out);
        operations_.push_back(std::move(d));
        break;
      }
      default: {
        settings_.push_back(pointwise_setting(op));
        Descriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, settings_.back());
        d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, in(0));
        if (op.in.size() > 1) d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, in(1));
        if (op.in.size() > 2) d.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, in(2));
        d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
        operations_.push_back(std::move(d));
        break;
      }
    }
    operations_.back().finalize();
  }
  // The graph refers to all operations. It has no handle if the GPU is only described.
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& d : operations_) raw.push_back(d.raw());
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(raw),
             static_cast<const void*>(raw.data()));
  if (handle != nullptr) graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph_.finalize();
}

std::string to_text(const EngineConfig& config) {
  std::string text = fmt::format("engine {}", config.engine);
  for (const Knob& knob : config.knobs) {
    text += fmt::format(", {} {}", knob_name(knob.type), knob.value);
  }
  return text;
}

std::vector<EngineConfig> heuristic_configs(const OperationGraph& graph, const Gpu& gpu) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor());
  constexpr cudnnBackendHeurMode_t kMode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &kMode);
  if (gpu.properties != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *gpu.properties);
  // A graph that cuDNN does not support has no configurations.
  const cudnnStatus_t status = heuristics.try_finalize();
  if (is_unsupported(status)) return {};
  check_cudnn(status, "heuristics refuse a graph");
  const std::int64_t most =
      // With no room for any, cuDNN returns how many configurations there are.
      heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<EngineConfig> configs;
  if (most == 0) return configs;
  for (Descriptor& d : get_descriptors(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, most)) {
    configs.push_back(read_config(std::move(d)));
  }
  return configs;
}

// Sets engine and knobs by hand, as NVIDIA's front end does for engines that the heuristics leave
// out.
std::optional<EngineConfig> fixed_config(const OperationGraph& graph, const Gpu& gpu,
                                         std::int64_t engine, std::span<const Knob> knobs) {
  if (engine >= graph.descriptor().get_integer(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT)) {
    return std::nullopt;
  }
  EngineConfig config{Descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), {}, engine, {}, 0};
  config.knobs.assign(knobs.begin(), knobs.end());
  const auto finalize = [](Descriptor& d, std::string_view what) {
    const cudnnStatus_t status = d.try_finalize();
    if (is_unsupported(status)) return false;
    check_cudnn(status, what);
    return true;
  };
  // First the engine itself.
  Descriptor& maker = config.parts.emplace_back(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  maker.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.descriptor());
  maker.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, engine);
  if (gpu.properties != nullptr) maker.set(CUDNN_ATTR_ENGINE_DEVICEPROP, *gpu.properties);
  if (!finalize(maker, "an engine is refused")) return std::nullopt;
  config.config.set(CUDNN_ATTR_ENGINECFG_ENGINE, maker);
  // Then a descriptor for each knob.
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Knob& knob : knobs) {
    Descriptor& choice = config.parts.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    choice.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob.type);
    choice.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, knob.value);
    if (!finalize(choice, "a knob is refused")) return std::nullopt;
    raw.push_back(choice.raw());
  }
  config.config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    std::ssize(raw), static_cast<const void*>(raw.data()));
  if (!finalize(config.config, "an engine's knobs are refused")) return std::nullopt;
  read_workspace(config);
  return config;
}

// Finalizing an execution plan compiles its kernels at run time.
PlanAttempt try_plan(const EngineConfig& config, const Gpu& gpu) {
  Plan plan{Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), 0};
  if (gpu.handle != nullptr) plan.descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, gpu.handle);
  if (gpu.properties != nullptr) {
    plan.descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *gpu.properties);
  }
  plan.descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.config);
  PlanAttempt attempt;
  attempt.status = plan.descriptor.try_finalize();
  if (attempt.status != CUDNN_STATUS_SUCCESS) {
    attempt.message = cudnn_status_text(attempt.status);
    return attempt;
  }
  plan.workspace_bytes = plan.descriptor.get_integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  attempt.plan = std::move(plan);
  return attempt;
}

Descriptor variant_pack(std::span<const Binding> bindings, void* workspace) {
  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  for (const Binding& b : bindings) {
    ids.push_back(b.id);
    addresses.push_back(b.address);
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::ssize(ids), ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(addresses),
           static_cast<const void*>(addresses.data()));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
           static_cast<const void*>(&workspace));
  pack.finalize();
  return pack;
}

}  // namespace tessera::trainer::cuda
