// SPDX-License-Identifier: Apache-2.0
#include "trainer/selftest/run_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>

namespace tessera::trainer::test {

std::byte* HostMemory::operator()(std::int64_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 256, static_cast<std::size_t>(bytes)) != 0) throw std::bad_alloc();
  blocks_.emplace_back(static_cast<std::byte*>(p));
  return blocks_.back().get();
}

Outcome run_case(const Case& c, DType dtype, Device& device, const CheckArena::Allocate& allocate,
                 const Overrides& overrides, Seal seal, std::span<std::byte> given) {
  CheckArena arena(device, dtype, allocate, overrides);
  const std::vector<Op> ops = c.build(arena);
  std::int64_t workspace = 0;
  for (const Op& op : ops) workspace = std::max(workspace, device.workspace_bytes(op));
  if (!given.empty() && workspace > static_cast<std::int64_t>(given.size()))
    throw std::length_error(c.name + " needs more workspace");
  device.prepare(ops, given.empty()
                          ? std::span(allocate(workspace), static_cast<std::size_t>(workspace))
                          : given);
  arena.refill();
  if (seal == Seal::yes) device.seal();
  for (const Op& op : ops) device.run(Stream::compute, op, {});
  Outcome outcome;
  outcome.compared = arena.compared();
  for (const std::string& name : outcome.compared) outcome.values[name] = arena.values(name);
  for (const auto& [output, weight] : c.objective) {
    outcome.values[output] = arena.values(output);
    if (!weight.empty()) outcome.values[weight] = arena.values(weight);
  }
  for (const auto& [input, gradient] : c.gradients)
    outcome.values[gradient] = arena.values(gradient);
  outcome.bytes = arena.bytes();
  outcome.overrun = arena.overrun();
  return outcome;
}

Outcome run_case(const Case& c, DType dtype, int threads, const Overrides& overrides,
                 const cpu::Kernels* kernels) {
  const auto device = kernels == nullptr ? cpu_device(threads) : cpu::cpu_device(threads, *kernels);
  HostMemory memory;
  return run_case(c, dtype, *device, [&](std::int64_t bytes) { return memory(bytes); }, overrides);
}

std::int64_t case_bytes(const Case& c, DType dtype) {
  const auto device = cpu_device(1);
  HostMemory memory;
  std::int64_t all = 0;
  const Overrides none;
  CheckArena arena(
      *device, dtype,
      [&](std::int64_t bytes) {
        all += bytes;
        return memory(bytes);
      },
      none);
  c.build(arena);
  return all;
}

double distance(const Values& a, const Values& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinity;
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return kInfinity;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (difference == 0) return 0;
  return norm == 0 ? kInfinity : std::sqrt(difference / norm);
}

}  // namespace tessera::trainer::test
