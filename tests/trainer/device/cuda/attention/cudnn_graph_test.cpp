// SPDX-License-Identifier: Apache-2.0
// Descriptors of the real cuDNN, which makes them even without a GPU.
#include "trainer/device/cuda/attention/cudnn_graph.h"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "trainer/device/cuda/attention/attention_plans.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::cuda;

namespace {

template <class T>
T read(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  T value{};
  CHECK(d.get(name, type, 1, &value) == 1);
  return value;
}

Descriptor part(const Descriptor& d, cudnnBackendAttributeName_t name,
                cudnnBackendDescriptorType_t type) {
  Descriptor found(type);
  cudnnBackendDescriptor_t raw = found.raw();
  CHECK(d.get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, static_cast<void*>(&raw)) == 1);
  return found;
}

std::int64_t tensor_id(const Descriptor& operation, cudnnBackendAttributeName_t name) {
  return part(operation, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .get_integer(CUDNN_ATTR_TENSOR_UNIQUE_ID);
}

template <class Run>
Error error_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return Error(ExitCode::internal, "", "");
}

}  // namespace

// cuDNN does not give back pointwise operations and alignments; attention_plans_test.cpp checks
// those.
TEST_CASE("cuDNN has understood tensors and operations as they were said") {
  TensorGraph graph;
  const std::size_t a = graph.memory(1, Element::bf16, {2, 4, 16, 8}, {1024, 8, 64, 1});
  const std::size_t b = graph.memory(2, Element::bf16, {2, 2, 8, 16}, {1024, 8, 1, 64});
  const std::size_t factor = graph.host(3);
  const std::size_t product = graph.apply(Step::matmul, {a, b}, Element::f32, {2, 4, 16, 16});
  const std::size_t index = graph.apply(Step::index, {product}, Element::i32, {2, 4, 16, 16}, 2);
  const std::size_t mask =
      graph.apply(Step::greater_equal, {index, index}, Element::boolean, {2, 4, 16, 16});
  const std::size_t chosen =
      graph.apply(Step::select, {product, factor, mask}, Element::f32, {2, 4, 16, 16});
  const std::size_t turned =
      graph.reinterpret(chosen, Element::bf16, {2, 4, 16, 16}, {1024, 256, 1, 16});
  const std::size_t most = graph.memory(4, Element::f32, {2, 4, 16, 1}, {64, 16, 1, 1});
  graph.write(Step::maximum, {turned}, most);

  const OperationGraph built(graph, nullptr);
  REQUIRE(built.tensors().size() == graph.tensors.size());
  constexpr cudnnDataType_t kTypes[] = {CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, CUDNN_DATA_INT32,
                                        CUDNN_DATA_BOOLEAN};
  for (std::size_t i = 0; i < built.tensors().size(); ++i) {
    const GraphTensor& t = graph.tensors[i];
    const Descriptor& d = built.tensors()[i];
    CAPTURE(t.id);
    CHECK(d.get_integer(CUDNN_ATTR_TENSOR_UNIQUE_ID) == t.id);
    Extents dims{};
    Extents strides{};
    CHECK(d.get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data()) == 4);
    CHECK(d.get(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data()) == 4);
    CHECK(dims == t.dims);
    CHECK(strides == t.strides);
    CHECK(read<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE) ==
          kTypes[static_cast<std::size_t>(t.element)]);
    CHECK(read<bool>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN) ==
          (t.place == Place::inner));
    CHECK(read<bool>(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN) ==
          (t.place == Place::host));
  }

  const std::span<const Descriptor> ops = built.operations();
  REQUIRE(ops.size() == 6);
  const auto id = [&](std::size_t i) { return graph.tensors[i].id; };
  CHECK(tensor_id(ops[0], CUDNN_ATTR_OPERATION_MATMUL_ADESC) == id(a));
  CHECK(tensor_id(ops[0], CUDNN_ATTR_OPERATION_MATMUL_BDESC) == id(b));
  CHECK(tensor_id(ops[0], CUDNN_ATTR_OPERATION_MATMUL_CDESC) == id(product));
  CHECK(tensor_id(ops[4], CUDNN_ATTR_OPERATION_RESHAPE_XDESC) == id(chosen));
  CHECK(tensor_id(ops[4], CUDNN_ATTR_OPERATION_RESHAPE_YDESC) == id(turned));
  const Descriptor reduction =
      part(ops[5], CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  CHECK(read<cudnnReduceTensorOp_t>(reduction, CUDNN_ATTR_REDUCTION_OPERATOR,
                                    CUDNN_TYPE_REDUCTION_OPERATOR_TYPE) == CUDNN_REDUCE_TENSOR_MAX);
  CHECK(tensor_id(ops[5], CUDNN_ATTR_OPERATION_REDUCTION_XDESC) == id(turned));
  CHECK(tensor_id(ops[5], CUDNN_ATTR_OPERATION_REDUCTION_YDESC) == id(most));
}

TEST_CASE("what cuDNN refuses is an error with its status and what it says itself") {
  TensorGraph graph;
  graph.memory(1, Element::bf16, {0, 1, 8, 8}, {64, 64, 8, 1});
  const Error error = error_of([&] { const OperationGraph refused(graph, nullptr); });
  CHECK(error.code() == ExitCode::failed);
  const std::string text = error.what();
  CAPTURE(text);
  CHECK(text.find("cuDNN ") == 0);
  CHECK(text.find("CUDNN_STATUS_BAD_PARAM") != std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(error_of([] { device_properties("{\"no\": 1"); }).code() == ExitCode::failed);
}

TEST_CASE("without a GPU attention's plans cannot be made") {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0) return;
  const Error error = error_of([] { const AttentionPlans plans(90, true); });
  CHECK(error.code() == ExitCode::wrong_device);
  CHECK(std::string(error.what()).find("cannot use the GPU: CUDNN_STATUS_") != std::string::npos);
}
