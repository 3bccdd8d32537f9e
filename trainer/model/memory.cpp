// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/memory.h"

#include <fmt/format.h>

#include "lib/base/error.h"

namespace tessera::trainer {

Memory::Memory(const memory::Config& config, memory::Plan plan, PoolBases bases)
    : config_(config),
      plan_(std::move(plan)),
      units_(memory::units(config_)),
      mask_(memory::mask_of(config_)),
      bases_(bases) {
  for (std::size_t index = 0; index < plan_.buffers.size(); ++index)
    by_name_[plan_.buffers[index].name] = index;
}

std::byte* Memory::data(std::string_view buffer) const {
  const auto found = by_name_.find(std::string(buffer));
  if (found == by_name_.end()) {
    throw Error(ExitCode::internal, "memory plan", fmt::format("has no buffer {}", buffer));
  }
  const memory::Buffer& planned = plan_.buffers[found->second];
  return bases_[static_cast<std::size_t>(planned.pool)] + planned.offset;
}

Tensor Memory::tensor(std::string_view buffer, std::int64_t rows, std::int64_t cols,
                      DType dtype) const {
  std::byte* begin = data(buffer);
  const std::int64_t planned = plan_.buffers[by_name_.at(std::string(buffer))].bytes;
  if (rows * cols * bytes_of(dtype) > planned) {
    throw Error(
        ExitCode::internal, "memory plan",
        fmt::format("{} has {} bytes, {} x {} do not fit in it", buffer, planned, rows, cols));
  }
  return {.data = begin, .dtype = dtype, .rows = rows, .cols = cols, .ld = cols};
}

Tensor Memory::flat(std::int64_t unit, std::string_view kind) const {
  const memory::Unit& all = units_[static_cast<std::size_t>(unit)];
  const bool frozen = kind == "frozen";
  return tensor(fmt::format("u{}.{}", unit, kind), 1,
                frozen ? all.frozen.elements : all.trained.elements,
                frozen || kind == "param" ? compute() : DType::f32);
}

Tensor Memory::part(const Tensor& flat, const memory::FlatBuffer& parameters,
                    std::string_view name) {
  for (const memory::Parameter& parameter : parameters.parameters) {
    if (parameter.name != name) continue;
    return {.data = static_cast<std::byte*>(flat.data) + parameter.offset * bytes_of(flat.dtype),
            .dtype = flat.dtype,
            .rows = parameter.rows,
            .cols = parameter.cols,
            .ld = parameter.cols};
  }
  return {};
}

Tensor Memory::parameter(std::int64_t unit, std::string_view name) const {
  const memory::Unit& all = units_[static_cast<std::size_t>(unit)];
  // In f32 the master weights are those that compute.
  const char* kind = compute() == DType::f32 ? "master" : "param";
  if (const Tensor trained = part(flat(unit, kind), all.trained, name)) return trained;
  if (all.frozen.elements == 0) return {};
  return part(flat(unit, "frozen"), all.frozen, name);
}

Tensor Memory::residual_parameter(std::int64_t unit, std::string_view name) const {
  return residual() == compute() ? parameter(unit, name) : master(unit, name);
}

Tensor Memory::gradient(std::int64_t unit, std::string_view name) const {
  return part(flat(unit, "grad"), units_[static_cast<std::size_t>(unit)].trained, name);
}

Tensor Memory::master(std::int64_t unit, std::string_view name) const {
  return part(flat(unit, "master"), units_[static_cast<std::size_t>(unit)].trained, name);
}

Tensor rows_of(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
  Tensor rows = tensor;
  rows.data = static_cast<std::byte*>(tensor.data) + begin * tensor.ld * bytes_of(tensor.dtype);
  rows.rows = count;
  return rows;
}

}  // namespace tessera::trainer
