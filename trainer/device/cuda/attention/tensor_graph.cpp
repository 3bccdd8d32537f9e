// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/attention/tensor_graph.h"

#include <iterator>
#include <utility>

namespace tessera::trainer::cuda {

Extents dense_strides(const Extents& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

std::size_t TensorGraph::memory(std::int64_t id, Element element, const Extents& dims,
                                const Extents& strides) {
  tensors.push_back({id, Place::memory, element, dims, strides});
  return tensors.size() - 1;
}

std::size_t TensorGraph::host(std::int64_t id) {
  tensors.push_back({id, Place::host, Element::f32});
  return tensors.size() - 1;
}

std::size_t TensorGraph::apply(Step step, std::vector<std::size_t> in, Element element,
                               const Extents& dims, std::int64_t axis) {
  tensors.push_back(
      {kFirstInner + std::ssize(tensors), Place::inner, element, dims, dense_strides(dims)});
  ops.push_back({step, std::move(in), tensors.size() - 1, axis});
  return tensors.size() - 1;
}

std::size_t TensorGraph::reinterpret(std::size_t x, Element element, const Extents& dims,
                                     const Extents& strides) {
  tensors.push_back({kFirstInner + std::ssize(tensors), Place::inner, element, dims, strides});
  ops.push_back({Step::reinterpret, {x}, tensors.size() - 1});
  return tensors.size() - 1;
}

void TensorGraph::write(Step step, std::vector<std::size_t> in, std::size_t out) {
  ops.push_back({step, std::move(in), out});
}

}  // namespace tessera::trainer::cuda
