// SPDX-License-Identifier: Apache-2.0
// A computation on four-dimensional tensors as a plain value. cuDNN gets it as an operation graph
// (cudnn_graph.h); it can be printed or evaluated without cuDNN.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::trainer::cuda {

enum class Element : std::uint8_t { bf16, f32, i32, boolean };

// The place of a tensor's elements.
enum class Place : std::uint8_t {
  memory,  // of the GPU, at an address that is given when the graph runs
  host,    // one f32 that cuDNN reads from host memory at the launch
  inner,   // not in memory: passed from operation to operation
};

using Extents = std::array<std::int64_t, 4>;

struct GraphTensor {
  std::int64_t id = 0;  // unique within a graph
  Place place = Place::inner;
  Element element = Element::f32;
  Extents dims = {1, 1, 1, 1};
  Extents strides = {1, 1, 1, 1};  // elements
  bool operator==(const GraphTensor&) const = default;
};

// An operation y of x, a and b. It computes in f32 and rounds to y's element type. A dimension of 1
// is broadcast.
enum class Step : std::uint8_t {
  matmul,         // of the inner two dimensions, for each of the outer two; where b has a's outer
                  // dimension divided by n, one of b serves n consecutive of a
  add,            // a + b
  subtract,       // a - b
  multiply,       // a b
  divide,         // a / b
  exponential,    // e^x
  logarithm,      // natural
  copy,           // x
  index,          // of the element in dimension `axis`, as i32; x gives the shape alone
  greater_equal,  // a >= b, as boolean
  select,         // a where c, else b
  maximum,        // over the dimensions that y has shorter than x: a dimension divided by n takes
  sum,            // n consecutive indices together
  reinterpret,    // x's memory with other dimensions and strides: a transposition
};

struct GraphOp {
  Step step = Step::copy;
  std::vector<std::size_t> in;  // indices of TensorGraph::tensors, like out
  std::size_t out = 0;
  std::int64_t axis = 0;
};

// The address of a graph's tensor, in device or host memory, when the graph runs.
struct Binding {
  std::int64_t id = 0;
  void* address = nullptr;
};

struct TensorGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphOp> ops;  // each reads only tensors that are given or written before

  // Each adds a tensor and returns its index. Ids of inner tensors count from kFirstInner.
  std::size_t memory(std::int64_t id, Element element, const Extents& dims, const Extents& strides);
  std::size_t host(std::int64_t id);
  // Adds an operation and the tensor it writes, dense or with the given strides.
  std::size_t apply(Step step, std::vector<std::size_t> in, Element element, const Extents& dims,
                    std::int64_t axis = 0);
  std::size_t reinterpret(std::size_t x, Element element, const Extents& dims,
                          const Extents& strides);

  // Adds an operation that writes an existing tensor.
  void write(Step step, std::vector<std::size_t> in, std::size_t out);
};
inline constexpr std::int64_t kFirstInner = 1000;

// Returns the strides of a dense tensor, the last dimension innermost.
Extents dense_strides(const Extents& dims);

}  // namespace tessera::trainer::cuda
