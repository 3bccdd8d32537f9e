// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/device/cuda/attention/fake_cudnn.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "trainer/device/cuda/libraries/libraries.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace tessera::trainer::test {

namespace {

using cuda::GraphTensor;
using cuda::Step;

struct Value {
  cudnnBackendAttributeType_t type{};
  std::int64_t count = 0;
  std::vector<std::byte> bytes;
};

struct Fake {
  cudnnBackendDescriptorType_t type{};
  bool is_final = false;
  std::map<int, Value> values;
  FakeEngine engine;  // for engines, their configurations and plans
};

void demand(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

Fake* fake_of(cudnnBackendDescriptor_t raw) {
  demand(raw != nullptr, "a null descriptor");
  return static_cast<Fake*>(raw);
}

const Value& value_of(const Fake& f, cudnnBackendAttributeName_t name) {
  const auto found = f.values.find(name);
  demand(found != f.values.end(), "attribute " + std::to_string(name) + " was not set");
  return found->second;
}
template <class T>
std::vector<T> all(const Fake& f, cudnnBackendAttributeName_t name) {
  const Value& value = value_of(f, name);
  std::vector<T> values(static_cast<std::size_t>(value.count));
  const std::span<std::byte> room = std::as_writable_bytes(std::span(values));
  demand(room.size() == value.bytes.size(), "an attribute's size");
  std::ranges::copy(value.bytes, room.begin());
  return values;
}
template <class T>
T one(const Fake& f, cudnnBackendAttributeName_t name) {
  const Value& value = value_of(f, name);
  std::array<T, 1> result{};
  const std::span<std::byte> room = std::as_writable_bytes(std::span(result));
  demand(value.count == 1 && room.size() == value.bytes.size(), "an attribute's size");
  std::ranges::copy(value.bytes, room.begin());
  return result[0];
}
const Fake& part(const Fake& f, cudnnBackendAttributeName_t name) {
  return *fake_of(one<cudnnBackendDescriptor_t>(f, name));
}

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_INT64:
      return sizeof(std::int64_t);
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return sizeof(void*);
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_KNOB_TYPE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
      return sizeof(int);
    default:
      throw std::logic_error("an attribute type that is not known here");
  }
}

cuda::Element element(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BFLOAT16:
      return cuda::Element::bf16;
    case CUDNN_DATA_FLOAT:
      return cuda::Element::f32;
    case CUDNN_DATA_INT32:
      return cuda::Element::i32;
    case CUDNN_DATA_BOOLEAN:
      return cuda::Element::boolean;
    default:
      throw std::logic_error("a data type that is not known here");
  }
}

GraphTensor told_tensor(const Fake& f) {
  demand(f.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR, "not a tensor");
  demand(one<std::int64_t>(f, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) == 16, "an alignment");
  GraphTensor t;
  t.id = one<std::int64_t>(f, CUDNN_ATTR_TENSOR_UNIQUE_ID);
  t.element = element(one<cudnnDataType_t>(f, CUDNN_ATTR_TENSOR_DATA_TYPE));
  if (!one<bool>(f, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
    t.place = one<bool>(f, CUDNN_ATTR_TENSOR_IS_BY_VALUE) ? cuda::Place::host : cuda::Place::memory;
  }
  std::ranges::copy(all<std::int64_t>(f, CUDNN_ATTR_TENSOR_DIMENSIONS), t.dims.begin());
  std::ranges::copy(all<std::int64_t>(f, CUDNN_ATTR_TENSOR_STRIDES), t.strides.begin());
  return t;
}

Step step_of(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return Step::add;
    case CUDNN_POINTWISE_SUB:
      return Step::subtract;
    case CUDNN_POINTWISE_MUL:
      return Step::multiply;
    case CUDNN_POINTWISE_DIV:
      return Step::divide;
    case CUDNN_POINTWISE_EXP:
      return Step::exponential;
    case CUDNN_POINTWISE_LOG:
      return Step::logarithm;
    case CUDNN_POINTWISE_IDENTITY:
      return Step::copy;
    case CUDNN_POINTWISE_GEN_INDEX:
      return Step::index;
    case CUDNN_POINTWISE_CMP_GE:
      return Step::greater_equal;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return Step::select;
    default:
      throw std::logic_error("a pointwise mode that is not known here");
  }
}

ToldOperation told_operation(const Fake& f) {
  ToldOperation op;
  const auto in = [&](cudnnBackendAttributeName_t name) {
    op.in.push_back(told_tensor(part(f, name)));
  };
  switch (f.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      op.step = Step::matmul;
      op.computes_in = one<cudnnDataType_t>(part(f, CUDNN_ATTR_OPERATION_MATMUL_DESC),
                                            CUDNN_ATTR_MATMUL_COMP_TYPE);
      in(CUDNN_ATTR_OPERATION_MATMUL_ADESC);
      in(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
      op.out = told_tensor(part(f, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
      break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: {
      const Fake& setting = part(f, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
      const auto kind = one<cudnnReduceTensorOp_t>(setting, CUDNN_ATTR_REDUCTION_OPERATOR);
      demand(kind == CUDNN_REDUCE_TENSOR_MAX || kind == CUDNN_REDUCE_TENSOR_ADD, "a reduction");
      op.step = kind == CUDNN_REDUCE_TENSOR_MAX ? Step::maximum : Step::sum;
      op.computes_in = one<cudnnDataType_t>(setting, CUDNN_ATTR_REDUCTION_COMP_TYPE);
      in(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
      op.out = told_tensor(part(f, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
      break;
    }
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      op.step = Step::reinterpret;
      in(CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
      op.out = told_tensor(part(f, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
      break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
      const Fake& setting = part(f, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      op.step = step_of(one<cudnnPointwiseMode_t>(setting, CUDNN_ATTR_POINTWISE_MODE));
      op.computes_in = one<cudnnDataType_t>(setting, CUDNN_ATTR_POINTWISE_MATH_PREC);
      if (setting.values.contains(CUDNN_ATTR_POINTWISE_AXIS))
        op.axis = one<std::int64_t>(setting, CUDNN_ATTR_POINTWISE_AXIS);
      in(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
      for (const auto name :
           {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC})
        if (f.values.contains(name)) in(name);
      op.out = told_tensor(part(f, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
      break;
    }
    default:
      throw std::logic_error("not an operation");
  }
  return op;
}

cudnnStatus_t create(cudnnHandle_t* handle) {
  if (fake_cudnn().create_status != CUDNN_STATUS_SUCCESS) return fake_cudnn().create_status;
  *handle = new cudnnContext;
  ++fake_cudnn().handles;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy(cudnnHandle_t handle) {
  delete handle;
  --fake_cudnn().handles;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  ++fake_cudnn().streams_set;
  return CUDNN_STATUS_SUCCESS;
}

std::size_t version() {
  return fake_cudnn().version;
}

const char* error_string(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_FAKE";
}

void last_error(char* message, std::size_t size) {
  std::strncpy(message, "first line\nsecond", size - 1);
}

cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* raw) {
  auto* fake = new Fake;
  fake->type = type;
  *raw = fake;
  ++fake_cudnn().descriptors;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t raw) {
  delete fake_of(raw);
  --fake_cudnn().descriptors;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t raw, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* values) {
  Fake& f = *fake_of(raw);
  demand(!f.is_final, "a final descriptor is changed");
  Value value{type, count,
              std::vector<std::byte>(static_cast<std::size_t>(count) * bytes_of(type))};
  if (count > 0) std::memcpy(value.bytes.data(), values, value.bytes.size());
  demand(f.values.emplace(name, std::move(value)).second, "an attribute is set twice");
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (const auto& of : all<cudnnBackendDescriptor_t>(f, name))
      demand(fake_of(of)->is_final, "a descriptor is used before it is final");
  }
  return CUDNN_STATUS_SUCCESS;
}

std::vector<cuda::Knob> told_knobs(const Fake& config) {
  std::vector<cuda::Knob> knobs;
  for (const auto& raw : all<cudnnBackendDescriptor_t>(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
    knobs.push_back({one<cudnnBackendKnobType_t>(*fake_of(raw), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE),
                     one<std::int64_t>(*fake_of(raw), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)});
  }
  return knobs;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t raw) {
  Fake& f = *fake_of(raw);
  demand(!f.is_final, "a descriptor is made final twice");
  switch (f.type) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      std::vector<ToldOperation> told;
      for (const auto& op : all<cudnnBackendDescriptor_t>(f, CUDNN_ATTR_OPERATIONGRAPH_OPS))
        told.push_back(told_operation(*fake_of(op)));
      fake_cudnn().graphs.push_back(std::move(told));
      break;
    }
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: {
      const auto index =
          one<std::int64_t>(part(f, CUDNN_ATTR_ENGINECFG_ENGINE), CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
      const std::vector<cuda::Knob> knobs = told_knobs(f);
      const auto& fixed = fake_cudnn().fixed;
      const auto found = std::ranges::find_if(
          fixed, [&](const FakeEngine& e) { return e.index == index && e.knobs == knobs; });
      if (found == fixed.end()) return CUDNN_STATUS_NOT_SUPPORTED;
      f.engine = *found;
      break;
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      ++fake_cudnn().plans_tried;
      demand(one<cudnnHandle_t>(f, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != nullptr, "no handle");
      f.engine = part(f, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine;
      if (f.engine.plan_status != CUDNN_STATUS_SUCCESS) return f.engine.plan_status;
      break;
    default:
      break;
  }
  f.is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

// Fills one of the caller's descriptors as the library would.
Fake& hand_out(void* values, std::int64_t i, const FakeEngine& engine) {
  Fake& f = *fake_of(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
  f.is_final = true;
  f.engine = engine;
  return f;
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t raw, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, std::int64_t requested,
                            std::int64_t* count, void* values) {
  const Fake& f = *fake_of(raw);
  demand(f.is_final, "a descriptor is read before it is final");
  const auto integer = [&](std::int64_t value) {
    *count = 1;
    std::memcpy(values, &value, sizeof(value));
  };
  const std::vector<FakeEngine>& offered = fake_cudnn().offered;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      *count = std::ssize(offered);
      for (std::int64_t i = 0; i < std::min(requested, *count); ++i)
        hand_out(values, i, offered[static_cast<std::size_t>(i)]);
      break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      *count = 1;
      hand_out(values, 0, f.engine);
      break;
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      *count = std::ssize(f.engine.knobs);
      demand(*count <= requested, "no room for knobs");
      for (std::int64_t i = 0; i < *count; ++i)
        hand_out(values, i, {.knobs = {f.engine.knobs[static_cast<std::size_t>(i)]}});
      break;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      *count = 1;
      std::memcpy(values, &f.engine.knobs.at(0).type, sizeof(cudnnBackendKnobType_t));
      break;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
      integer(f.engine.knobs.at(0).value);
      break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      integer(f.engine.index);
      break;
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
      integer(f.engine.config_bytes);
      break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      integer(f.engine.plan_bytes);
      break;
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
      integer(20);
      break;
    default:
      throw std::logic_error("attribute " + std::to_string(name) + " is not kept here");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t pack) {
  const Fake& told = *fake_of(pack);
  demand(fake_of(plan)->is_final && told.is_final, "what runs is not final");
  FakeCudnn::Execution run;
  run.engine = fake_of(plan)->engine.index;
  const auto ids = all<std::int64_t>(told, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = all<void*>(told, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  demand(ids.size() == addresses.size(), "ids and addresses");
  for (std::size_t i = 0; i < ids.size(); ++i) run.addresses[ids[i]] = addresses[i];
  for (const std::vector<ToldOperation>& graph : fake_cudnn().graphs)
    for (const ToldOperation& op : graph)
      for (const GraphTensor& t : op.in)
        if (t.place == cuda::Place::host && run.addresses.contains(t.id))
          run.numbers[t.id] = *static_cast<const float*>(run.addresses.at(t.id));
  run.workspace = one<void*>(told, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  run.stream = handle->stream;
  fake_cudnn().executions.push_back(std::move(run));
  return CUDNN_STATUS_SUCCESS;
}

cuda::Cudnn fake_table() {
  cuda::Cudnn table;
  table.path = "/fake/libcudnn.so.9";
  table.version = "9.19.0";
  table.cudnnCreate = create;
  table.cudnnDestroy = destroy;
  table.cudnnSetStream = set_stream;
  table.cudnnGetVersion = version;
  table.cudnnGetErrorString = error_string;
  table.cudnnGetLastErrorString = last_error;
  table.cudnnBackendCreateDescriptor = create_descriptor;
  table.cudnnBackendDestroyDescriptor = destroy_descriptor;
  table.cudnnBackendSetAttribute = set_attribute;
  table.cudnnBackendGetAttribute = get_attribute;
  table.cudnnBackendFinalize = finalize;
  table.cudnnBackendExecute = execute;
  return table;
}

}  // namespace

FakeCudnn& fake_cudnn() {
  static FakeCudnn only;
  return only;
}

}  // namespace tessera::trainer::test

const tessera::trainer::cuda::Cudnn& tessera::trainer::cuda::cudnn() {
  static const Cudnn only = test::fake_table();
  return only;
}
