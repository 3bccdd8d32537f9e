// A computation on tensors of four dimensions as a plain value: what cuDNN is given as an operation
// graph (cudnn_graph.h), and what can be printed or carried out without it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::trainer::cuda {

enum class Element : std::uint8_t { bf16, f32, i32, boolean };

// Where a tensor's elements are.
enum class Place : std::uint8_t {
  memory,  // of the GPU, at an address that is given when the graph runs
  host,    // one f32, read from the host's memory when the graph is started
  inner,   // nowhere: handed from operation to operation
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

// y of x, a and b, each computed in f32 and rounded to y's element. A dimension of 1 serves all
// indices.
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
  std::vector<std::size_t> in;  // indices of TensorGraph::tensors, as is out
  std::size_t out = 0;
  std::int64_t axis = 0;
};

// What a tensor in memory or on the host is when a graph runs.
struct Binding {
  std::int64_t id = 0;
  void* address = nullptr;
};

struct TensorGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphOp> ops;  // each reads only what one before it wrote, or what is given

  // Each adds a tensor and returns its index. Ids of inner tensors count from kFirstInner.
  std::size_t memory(std::int64_t id, Element element, const Extents& dims, const Extents& strides);
  std::size_t host(std::int64_t id);
  // The operation too, which writes the tensor: dense, or with the strides given.
  std::size_t apply(Step step, std::vector<std::size_t> in, Element element, const Extents& dims,
                    std::int64_t axis = 0);
  std::size_t reinterpret(std::size_t x, Element element, const Extents& dims,
                          const Extents& strides);

  // Adds an operation that writes a tensor which exists.
  void write(Step step, std::vector<std::size_t> in, std::size_t out);
};
inline constexpr std::int64_t kFirstInner = 1000;

// The last dimension innermost, nothing between rows.
Extents dense_strides(const Extents& dims);

}  // namespace tessera::trainer::cuda
