// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/profiling.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/error.h"

namespace tessera::trainer {

namespace {

constexpr std::size_t kPairs = (kEvents - ProfilingDevice::kFirstEvent) / 2;

Event before(std::size_t pair) {
  return static_cast<Event>(ProfilingDevice::kFirstEvent + 2 * pair);
}

Event after(std::size_t pair) {
  return static_cast<Event>(before(pair) + 1);
}

OpClass class_of(const Op& op, Phase phase) {
  if (phase == Phase::update) return OpClass::optimizer;
  if (std::holds_alternative<Gemm>(op)) return OpClass::gemm;
  if (std::holds_alternative<AttentionForward>(op) || std::holds_alternative<AttentionBackward>(op))
    return OpClass::attention;
  return OpClass::memory_bound;
}

}  // namespace

void ProfilingDevice::begin() {
  totals_.clear();
  pending_.clear();
  on_ = true;
}

std::vector<OpTotal> ProfilingDevice::end() {
  drain();
  on_ = false;
  return std::move(totals_);
}

void ProfilingDevice::drain() {
  for (std::size_t pair = 0; pair < pending_.size(); ++pair) {
    device_.host_wait(after(pair));
    totals_[pending_[pair]].seconds += device_.seconds(before(pair), after(pair));
  }
  pending_.clear();
}

template <class Issue>
void ProfilingDevice::measure(Stream stream, const OpTotal& one, Issue issue) {
  const auto same = [&](const OpTotal& total) {
    return total.name == one.name && total.phase == one.phase && total.kind == one.kind;
  };
  auto found = std::ranges::find_if(totals_, same);
  if (found == totals_.end()) found = totals_.insert(found, {one.name, one.phase, one.kind});
  ++found->count;
  found->bytes += one.bytes;
  found->matmul_flops += one.matmul_flops;
  if (pending_.size() == kPairs) drain();
  const std::size_t pair = pending_.size();
  device_.record(stream, before(pair));
  issue();
  device_.record(stream, after(pair));
  pending_.push_back(static_cast<std::size_t>(found - totals_.begin()));
}

void ProfilingDevice::run(Stream stream, const Op& op, Tag tag) {
  if (!on_) return device_.run(stream, op, tag);
  const Cost needed = cost(op);
  measure(stream,
          {.name = op_name(op),
           .phase = to_text(tag.phase),
           .kind = class_of(op, tag.phase),
           .bytes = static_cast<double>(needed.bytes),
           .matmul_flops = needed.matmul_flops},
          [&] { device_.run(stream, op, tag); });
}

void ProfilingDevice::copy(Stream stream, void* dst, const void* src, std::int64_t bytes) {
  if (!on_) return device_.copy(stream, dst, src, bytes);
  measure(stream,
          {.name = "copy",
           .phase = "",
           .kind = stream == Stream::copy ? OpClass::offload : OpClass::memory_bound,
           .bytes = 2 * static_cast<double>(bytes)},
          [&] { device_.copy(stream, dst, src, bytes); });
}

void ProfilingDevice::record(Stream stream, Event event) {
  if (event >= kFirstEvent) {
    throw Error(ExitCode::internal, "event",
                fmt::format("{} is one of the profile's, from {}", event, kFirstEvent));
  }
  device_.record(stream, event);
}

}  // namespace tessera::trainer
