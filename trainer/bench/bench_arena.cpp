// SPDX-License-Identifier: Apache-2.0
#include "trainer/bench/bench_arena.h"

#include <cstring>

#include "lib/base/numbers.h"

namespace tessera::trainer {

namespace {

constexpr std::int64_t kAlignment = 256;

}  // namespace

std::byte* BenchArena::take(std::int64_t bytes) {
  std::byte* at = base_ + used_bytes_;
  used_bytes_ += round_up(bytes, kAlignment);
  return at;
}

std::byte* BenchArena::bytes(const void* content, std::size_t size) {
  std::byte* at = take(static_cast<std::int64_t>(size));
  Upload& upload = uploads_.emplace_back(Upload{at, std::vector<std::byte>(size)});
  std::memcpy(upload.content.data(), content, size);
  return at;
}

Tensor BenchArena::empty(const std::string& /*name*/, const Layout& layout) {
  const std::int64_t ld = layout.cols + layout.gap;
  return {.data = take(layout.rows * ld * bytes_of(layout.dtype)),
          .dtype = layout.dtype,
          .rows = layout.rows,
          .cols = layout.cols,
          .ld = ld};
}

Tensor BenchArena::filled(const std::string& name, const Layout& layout, double scale,
                          double shift) {
  const Tensor tensor = empty(name, layout);
  // Between rows, too.
  Tensor flat = tensor;
  flat.rows = 1;
  flat.cols = flat.ld = tensor.rows * tensor.ld;
  fills_.emplace_back(Init{.dst = flat,
                           .mean = static_cast<float>(shift),
                           .stddev = static_cast<float>(scale),
                           .seed = seed_++});
  return tensor;
}

Tensor BenchArena::integers(const std::vector<std::int32_t>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return {.data = bytes(values.data(), values.size() * sizeof(std::int32_t)),
          .dtype = DType::i32,
          .rows = 1,
          .cols = count,
          .ld = count};
}

const StepInputs* BenchArena::inputs(const StepInputs& inputs) {
  return reinterpret_cast<const StepInputs*>(bytes(&inputs, sizeof(inputs)));
}

StepState* BenchArena::state(const StepState& state) {
  return reinterpret_cast<StepState*>(bytes(&state, sizeof(state)));
}

void BenchArena::upload(Device& device) const {
  for (const Upload& upload : uploads_) {
    device.copy(Stream::compute, upload.to, upload.content.data(),
                static_cast<std::int64_t>(upload.content.size()));
  }
}

}  // namespace tessera::trainer
