// The memory plan laid over the device's pools: buffers, parameters and gradients as tensors.
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

// Base addresses of the pools; of pools without bytes anything.
using PoolBases = std::array<std::byte*, kPools>;

// Names buffers as lib/memory/plan.cpp does; what it has not is Error(internal). Copies what it
// needs.
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
  // The begin of a buffer as [rows, cols] without gaps; it must be that large.
  Tensor tensor(std::string_view buffer, std::int64_t rows, std::int64_t cols, DType dtype) const;
  // A unit's whole flat buffer [1, elements]: "master", "grad", "m", "v" (f32), "param", or
  // "frozen" (both for compute).
  Tensor flat(std::int64_t unit, std::string_view kind) const;

  // One parameter [rows, cols] for compute, empty if the model has none of that name; its gradient
  // and its f32 master likewise, empty for a frozen one too.
  Tensor parameter(std::int64_t unit, std::string_view name) const;
  // As what touches the residual stream reads it, tables and norms: in the residual's dtype.
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

// Rows [begin, begin + count) of a tensor.
Tensor rows_of(const Tensor& tensor, std::int64_t begin, std::int64_t count);

}  // namespace tessera::trainer
