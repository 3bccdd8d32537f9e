// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/device/cuda/attention/walk_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "trainer/selftest/arena.h"

namespace tessera::trainer::test {

namespace {

using cuda::Binding;
using cuda::Element;
using cuda::Extents;
using cuda::GraphOp;
using cuda::GraphTensor;
using cuda::Place;
using cuda::Step;
using cuda::TensorGraph;

std::int64_t offset(const Extents& at, const Extents& strides) {
  return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3];
}

void each_index(const Extents& dims, const std::function<void(const Extents&)>& visit) {
  Extents at{};
  for (at[0] = 0; at[0] < dims[0]; ++at[0])
    for (at[1] = 0; at[1] < dims[1]; ++at[1])
      for (at[2] = 0; at[2] < dims[2]; ++at[2])
        for (at[3] = 0; at[3] < dims[3]; ++at[3]) visit(at);
}

void demand(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

// Returns the index in a tensor with shorter dimensions: `n` indices of the longer one share one of
// it.
Extents shared_index(const Extents& at, const Extents& dims, const Extents& shorter) {
  Extents in{};
  for (std::size_t i = 0; i < 4; ++i) {
    demand(dims[i] % shorter[i] == 0, "a dimension is no multiple of the other's");
    in[i] = at[i] / (dims[i] / shorter[i]);
  }
  return in;
}

class Walk {
 public:
  Walk(const TensorGraph& graph, std::span<const Binding> bindings,
       const std::function<DType(const GraphTensor&)>& dtype_of, Rounding rounding)
      : graph_(graph), dtype_of_(dtype_of), rounding_(rounding) {
    for (const Binding& b : bindings)
      demand(addresses_.emplace(b.id, b.address).second, "an id is bound twice");
    values_.resize(graph.tensors.size());
    written_.resize(graph.tensors.size());
  }

  void run() {
    std::set<std::int64_t> ids;
    for (const GraphTensor& t : graph_.tensors)
      demand(ids.insert(t.id).second, "two tensors have one id");
    for (const GraphOp& op : graph_.ops) {
      for (const std::size_t i : op.in) load(i);
      const GraphTensor& y = graph_.tensors[op.out];
      demand(y.place != Place::host, "a number passed by value is written");
      demand(!written_[op.out], "a tensor is written twice");
      values_[op.out] = result(op, y);
      written_[op.out] = true;
      if (y.element == Element::bf16 && rounding_ == Rounding::as_declared)
        for (double& value : values_[op.out]) value = round_to_bf16(value);
      if (y.place == Place::memory) store(op.out);
    }
  }

 private:
  std::byte* element(const GraphTensor& t, const Extents& at) const {
    const auto found = addresses_.find(t.id);
    demand(found != addresses_.end(), "a tensor in memory has no address");
    return static_cast<std::byte*>(found->second) + offset(at, t.strides) * bytes_of(dtype_of_(t));
  }

  // Inputs are dense here, in the order of their indices.
  void load(std::size_t i) {
    const GraphTensor& t = graph_.tensors[i];
    if (written_[i]) return;
    demand(t.place != Place::inner, "an inner tensor is read before it is written");
    values_[i].clear();
    each_index(t.dims, [&](const Extents& at) {
      values_[i].push_back(t.place == Place::host ? static_cast<double>(*static_cast<const float*>(
                                                        addresses_.at(t.id)))
                                                  : to_double(element(t, at), dtype_of_(t)));
    });
  }
  void store(std::size_t i) {
    const GraphTensor& t = graph_.tensors[i];
    each_index(t.dims,
               [&](const Extents& at) { from_double(value(i, at), element(t, at), dtype_of_(t)); });
  }

  double value(std::size_t i, const Extents& at) const {
    const Extents& dims = graph_.tensors[i].dims;
    return values_[i][static_cast<std::size_t>(offset(at, cuda::dense_strides(dims)))];
  }
  // Returns an element, with dimensions of 1 broadcast.
  double repeated(std::size_t i, const Extents& at) const {
    Extents in = at;
    for (std::size_t d = 0; d < 4; ++d) {
      const std::int64_t dim = graph_.tensors[i].dims[d];
      if (dim == 1) in[d] = 0;
      demand(in[d] < dim, "an operand is smaller than the result");
    }
    return value(i, in);
  }

  std::vector<double> result(const GraphOp& op, const GraphTensor& y) const {
    switch (op.step) {
      case Step::matmul:
        return product(op, y);
      case Step::maximum:
      case Step::sum:
        return reduced(op, y);
      case Step::reinterpret:
        return reinterpreted(op, y);
      default:
        break;
    }
    std::vector<double> all;
    each_index(y.dims, [&](const Extents& at) { all.push_back(pointwise(op, at)); });
    return all;
  }

  double pointwise(const GraphOp& op, const Extents& at) const {
    const auto operand = [&](std::size_t i) { return repeated(op.in.at(i), at); };
    switch (op.step) {
      case Step::add:
        return operand(0) + operand(1);
      case Step::subtract:
        return operand(0) - operand(1);
      case Step::multiply:
        return operand(0) * operand(1);
      case Step::divide:
        return operand(0) / operand(1);
      case Step::exponential:
        return std::exp(operand(0));
      case Step::logarithm:
        return std::log(operand(0));
      case Step::copy:
        return operand(0);
      case Step::index:
        return static_cast<double>(at.at(static_cast<std::size_t>(op.axis)));
      case Step::greater_equal:
        return operand(0) >= operand(1) ? 1 : 0;
      case Step::select:
        return operand(2) != 0 ? operand(0) : operand(1);
      default:
        throw std::logic_error("no operation by elements");
    }
  }

  std::vector<double> product(const GraphOp& op, const GraphTensor& y) const {
    const Extents& a = graph_.tensors[op.in.at(0)].dims;
    const Extents& b = graph_.tensors[op.in.at(1)].dims;
    demand(a[3] == b[2] && y.dims[2] == a[2] && y.dims[3] == b[3] && y.dims[0] == a[0] &&
               y.dims[1] == a[1],
           "a product's shapes do not fit");
    std::vector<double> all;
    each_index(y.dims, [&](const Extents& at) {
      const Extents outer =
          shared_index({at[0], at[1], 0, 0}, {a[0], a[1], 1, 1}, {b[0], b[1], 1, 1});
      double sum = 0;
      for (std::int64_t k = 0; k < a[3]; ++k)
        sum += value(op.in[0], {at[0], at[1], at[2], k}) *
               value(op.in[1], {outer[0], outer[1], k, at[3]});
      all.push_back(sum);
    });
    return all;
  }

  std::vector<double> reduced(const GraphOp& op, const GraphTensor& y) const {
    const Extents& x = graph_.tensors[op.in.at(0)].dims;
    const bool sums = op.step == Step::sum;
    std::vector<double> all(static_cast<std::size_t>(y.dims[0] * y.dims[1] * y.dims[2] * y.dims[3]),
                            sums ? 0 : -std::numeric_limits<double>::infinity());
    each_index(x, [&](const Extents& at) {
      double& to = all[static_cast<std::size_t>(
          offset(shared_index(at, x, y.dims), cuda::dense_strides(y.dims)))];
      const double from = value(op.in[0], at);
      to = sums ? to + from : std::max(to, from);
    });
    return all;
  }

  std::vector<double> reinterpreted(const GraphOp& op, const GraphTensor& y) const {
    const GraphTensor& x = graph_.tensors[op.in.at(0)];
    const double kNothing = std::numeric_limits<double>::quiet_NaN();
    const Extents last = {x.dims[0] - 1, x.dims[1] - 1, x.dims[2] - 1, x.dims[3] - 1};
    std::vector<double> memory(static_cast<std::size_t>(offset(last, x.strides) + 1), kNothing);
    std::size_t elements = 0;
    each_index(x.dims, [&](const Extents& at) {
      double& place = memory[static_cast<std::size_t>(offset(at, x.strides))];
      demand(std::isnan(place), "two elements have one place");
      place = value(op.in[0], at);
      ++elements;
    });
    std::vector<double> all;
    each_index(y.dims, [&](const Extents& at) {
      all.push_back(memory.at(static_cast<std::size_t>(offset(at, y.strides))));
      demand(!std::isnan(all.back()), "an element is taken from between others");
    });
    demand(all.size() == elements, "a reinterpreted tensor has another size");
    return all;
  }

  const TensorGraph& graph_;
  const std::function<DType(const GraphTensor&)>& dtype_of_;
  Rounding rounding_;
  std::map<std::int64_t, void*> addresses_;
  std::vector<std::vector<double>> values_;
  std::vector<bool> written_;
};

}  // namespace

void walk(const TensorGraph& graph, std::span<const Binding> bindings,
          const std::function<DType(const GraphTensor&)>& dtype_of, Rounding rounding) {
  Walk(graph, bindings, dtype_of, rounding).run();
}

}  // namespace tessera::trainer::test
