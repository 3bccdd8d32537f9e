// One operation of each kind, of the sizes that a decoder's block and head give it, on data of its
// own: what `trainer bench-ops` measures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/device/device.h"

namespace tessera::trainer {

// Of a decoder as MPT's 125m.
struct BenchShape {
  std::int64_t d_model = 768;
  std::int64_t q_heads = 12;
  std::int64_t kv_heads = 12;
  std::int64_t head_dim = 64;
  std::int64_t ffn = 3072;
  std::int64_t vocab = 50368;  // padded to 128 in memory
  std::int64_t seq = 512;
  std::int64_t sequences = 4;    // at once
  std::int64_t head_rows = 512;  // of logits at once
  bool fused_gelu = false;       // products do the GELU: those are in it, too
};

// Memory for one operation, given out from a base; the base is only an address to it.
class BenchRoom {
 public:
  explicit BenchRoom(std::byte* base) : base_(base) {}

  // Not filled: outputs and scratch.
  Tensor empty(DType dtype, std::int64_t rows, std::int64_t cols);
  // Normal numbers times `stddev` plus `mean`, put there by the device.
  Tensor random(DType dtype, std::int64_t rows, std::int64_t cols, float stddev = 1,
                float mean = 0);
  Tensor integers(const std::vector<std::int32_t>& values);
  template <class T>
  T* value(const T& content) {
    return reinterpret_cast<T*>(bytes(&content, sizeof(T)));
  }
  // Runs once before the measurement, behind what fills the tensors.
  void before(const Op& op) { first_.push_back(op); }

  const std::vector<Op>& first() const { return first_; }
  std::int64_t used() const { return used_; }
  // Puts what comes from the host where it belongs.
  void upload(Device& device) const;

 private:
  std::byte* take(std::int64_t bytes);
  std::byte* bytes(const void* content, std::size_t size);

  struct Upload {
    std::byte* to;
    std::vector<std::byte> content;
  };
  std::byte* base_;
  std::int64_t used_ = 0;
  std::uint64_t seed_ = 1;
  std::vector<Op> first_;
  std::vector<Upload> uploads_;
};

struct BenchEntry {
  std::string variant;       // "gelu_erf", "dW": which of a kind's
  DType dtype = DType::f32;  // of the activations; f32 where there are none
  std::function<Op(BenchRoom&)> build;
};

// Every alternative of Op at least once; those with activations in f32 and in bf16.
std::vector<BenchEntry> bench_catalogue(const BenchShape& shape);

}  // namespace tessera::trainer
