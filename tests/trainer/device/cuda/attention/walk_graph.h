// SPDX-License-Identifier: Apache-2.0
// Evaluates a tensor graph on the CPU, in f64 and operation by operation: what cuDNN is told,
// without cuDNN.
#pragma once

#include <functional>
#include <span>

#include "lib/schedule/dtype.h"
#include "trainer/device/cuda/attention/tensor_graph.h"

namespace tessera::trainer::test {

enum class Rounding { none, as_declared };

// Tensors in memory have dtype_of(tensor), which may differ from their declared element.
// as_declared: inner bf16 tensors are rounded too, once each.
void walk(const cuda::TensorGraph& graph, std::span<const cuda::Binding> bindings,
          const std::function<DType(const cuda::GraphTensor&)>& dtype_of, Rounding rounding);

}  // namespace tessera::trainer::test
