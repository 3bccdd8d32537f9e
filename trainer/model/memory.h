// SPDX-License-Identifier: Apache-2.0
// The memory plan applied to the device's pools: buffers, parameters and gradients as tensors.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lib/memory/plan.h"
#include "lib/schedule/units.h"
#include "trainer/device/ops.h"

namespace tessera::trainer {

// Base addresses of the pools. Those of empty pools do not matter.
using PoolBases = std::array<std::byte*, kPools>;

// Finds buffers by the names of lib/memory/plan.cpp; an unknown name is Error(internal). Copies
// what it needs.
class Memory {
 public:
  Memory(const memory::Config& config, memory::Plan plan, PoolBases bases);

  const memory::Config& config() const { return config_; }
  const memory::Plan& plan() const { return plan_; }
  const std::vector<memory::Unit>& units() const { return units_; }
  const memory::RecomputeMask& mask() const { return mask_; }
  DType residual() const { return memory::residual_dtype(config_); }
  DType compute() const { return memory::compute_dtype(config_.precision); }

  std::byte* data(std::string_view buffer) const;
  // Returns the beginning of a buffer as [rows, cols] without gaps; it must be that large.
  Tensor tensor(std::string_view buffer, std::int64_t rows, std::int64_t cols, DType dtype) const;
  // Returns a unit's whole flat buffer [1, elements]: "master", "grad", "m", "v" (f32), "param", or
  // "frozen" (both in the compute dtype).
  Tensor flat(std::int64_t unit, std::string_view kind) const;

  // Returns a parameter [rows, cols] in the compute dtype, its gradient and its f32 master. Empty
  // if the model has none of that name; gradient and master are empty for a frozen parameter too.
  Tensor parameter(std::int64_t unit, std::string_view name) const;
  // Returns a table or norm parameter in the residual's dtype, which is how operations on the
  // residual stream read it.
  Tensor residual_parameter(std::int64_t unit, std::string_view name) const;
  Tensor gradient(std::int64_t unit, std::string_view name) const;
  Tensor master(std::int64_t unit, std::string_view name) const;

 private:
  static Tensor part(const Tensor& flat, const memory::FlatBuffer& parameters,
                     std::string_view name);

  memory::Config config_;
  memory::Plan plan_;
  std::vector<memory::Unit> units_;
  memory::RecomputeMask mask_;
  PoolBases bases_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

// Returns rows [begin, begin + count) of a tensor.
Tensor rows_of(const Tensor& tensor, std::int64_t begin, std::int64_t count);

}  // namespace tessera::trainer
