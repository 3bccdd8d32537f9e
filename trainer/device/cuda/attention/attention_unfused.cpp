// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/attention/attention_unfused.h"

#include <array>
#include <set>

namespace tessera::trainer::cuda {
namespace {

// Hands out matrices of the workspace one after another.
class BumpAllocator {
 public:
  explicit BumpAllocator(std::span<std::byte> workspace) : next_(workspace.data()) {}
  std::byte* take(std::int64_t bytes) {
    std::byte* const result = next_;
    next_ += bytes;
    return result;
  }

 private:
  std::byte* next_;
};

// Everything that a GEMM plan depends on.
using PlanKey = std::array<std::int64_t, 22>;

PlanKey key_of(const BatchedGemm& op) {
  PlanKey key{};
  auto next = key.begin();
  for (const Tensor* t : {&op.first.a, &op.first.b, &op.first.d}) {
    constexpr std::uintptr_t kAccess = 16;
    const auto beyond = reinterpret_cast<std::uintptr_t>(t->data) % kAccess;
    for (const std::int64_t value : {static_cast<std::int64_t>(t->dtype), t->rows, t->cols, t->ld,
                                     static_cast<std::int64_t>(beyond)})
      *next++ = value;
  }
  for (const std::int64_t value :
       {op.batch, op.a_stride, op.b_stride, op.d_stride, std::int64_t{op.first.transpose_a},
        std::int64_t{op.first.transpose_b}, std::int64_t{op.first.accumulate}})
    *next++ = value;
  return key;
}

// Records one GEMM of each plan instead of running it.
class Recorder final : public UnfusedAttention {
 public:
  void run(const BatchedGemm& op) override {
    if (known_.insert(key_of(op)).second) gemms.push_back(op);
  }
  void run(const SoftmaxForward&) override {}
  void run(const SoftmaxBackward&) override {}
  void run(const RowSum&) override {}
  void run(const Cast&) override {}

  std::vector<BatchedGemm> gemms;

 private:
  std::set<PlanKey> known_;
};

template <class Attention>
std::vector<BatchedGemm> gemms_of(const Attention& op, std::span<std::byte> workspace) {
  Recorder recorder;
  run_unfused_attention(op, workspace, recorder);
  return std::move(recorder.gemms);
}

}  // namespace

bool same_plan(const BatchedGemm& x, const BatchedGemm& y) {
  return key_of(x) == key_of(y);
}

void run_unfused_attention(const AttentionForward& op, std::span<std::byte> workspace,
                           UnfusedAttention& parts) {
  const AttentionShape& s = op.shape;
  const DType dtype = op.qkv.dtype;
  const AttentionChunk size =
      unfused_attention_chunk(op, static_cast<std::int64_t>(workspace.size()));
  const ChunkBytes bytes = chunk_bytes(s, dtype, size);
  BumpAllocator allocator(workspace);
  std::byte* const scores = allocator.take(bytes.scores);
  std::byte* const probabilities =
      bytes.probabilities > 0 ? allocator.take(bytes.probabilities) : scores;

  const auto run = [&](const Chunk& chunk, bool) {
    for (std::int64_t head = 0; head < chunk.group_heads; ++head) {
      parts.run(BatchedGemm{{.a = chunk.queries(op.qkv, head),
                             .b = chunk.keys_of(op.qkv),
                             .d = chunk.scores(scores, DType::f32, head)},
                            chunk.kv_heads,
                            chunk.query_stride(),
                            chunk.key_stride(),
                            chunk.score_stride()});
    }
    parts.run(SoftmaxForward{chunk.of(scores), chunk.all_scores(probabilities, dtype), op.lse});
    for (std::int64_t head = 0; head < chunk.group_heads; ++head) {
      parts.run(BatchedGemm{{.a = chunk.scores(probabilities, dtype, head),
                             .b = chunk.values_of(op.qkv),
                             .d = chunk.queries(op.out, head),
                             .transpose_b = false},
                            chunk.kv_heads,
                            chunk.score_stride(),
                            chunk.key_stride(),
                            chunk.query_stride()});
    }
  };
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for_parts(s.kv_heads, size.kv_heads, [&](std::int64_t first, std::int64_t count) {
      for_chunks(s, size, batch, first, count, run);
    });
  }
}

namespace {

// The sums of the gradients of keys and values: in f32 scratch, or dqkv itself if that is f32.
struct KeyGradients {
  Tensor keys, values;  // of one sequence: the columns of a chunk's kv heads
};

// Runs the five GEMMs of a chunk: S, dP, dV, dK and dQ.
void run_backward_chunk(const AttentionBackward& op, const Chunk& chunk, bool is_first,
                        std::byte* scores, std::byte* dprobabilities, std::byte* probabilities,
                        std::byte* dscores, const KeyGradients& sums, UnfusedAttention& parts) {
  const DType dtype = op.qkv.dtype;
  // A batch of one query head for each kv head of the chunk: rows times keys^T.
  const auto against_keys = [&](const Tensor& rows, const Tensor& keys, std::byte* to,
                                std::int64_t head) {
    parts.run(BatchedGemm{{.a = rows, .b = keys, .d = chunk.scores(to, DType::f32, head)},
                          chunk.kv_heads,
                          chunk.query_stride(),
                          chunk.key_stride(),
                          chunk.score_stride()});
  };
  const auto into_keys = [&](std::byte* from, const Tensor& rows, const Tensor& sum,
                             std::int64_t head) {
    parts.run(BatchedGemm{{.a = chunk.scores(from, dtype, head),
                           .b = rows,
                           .d = part_of(sum, 0, chunk.keys(), 0, chunk.s.head_dim),
                           .transpose_a = true,
                           .transpose_b = false,
                           .accumulate = !is_first || head > 0},
                          chunk.kv_heads,
                          chunk.score_stride(),
                          chunk.query_stride(),
                          chunk.key_stride()});
  };
  for (std::int64_t head = 0; head < chunk.group_heads; ++head) {
    against_keys(chunk.queries(op.qkv, head), chunk.keys_of(op.qkv), scores, head);
    against_keys(chunk.queries(op.dout, head), chunk.values_of(op.qkv), dprobabilities, head);
  }
  parts.run(SoftmaxBackward{chunk.of(scores), reinterpret_cast<const float*>(dprobabilities),
                            chunk.all_scores(probabilities, dtype),
                            chunk.all_scores(dscores, dtype), op.lse, op.row_sum});
  for (std::int64_t head = 0; head < chunk.group_heads; ++head) {
    into_keys(probabilities, chunk.queries(op.dout, head), sums.values, head);
    into_keys(dscores, chunk.queries(op.qkv, head), sums.keys, head);
    parts.run(BatchedGemm{{.a = chunk.scores(dscores, dtype, head),
                           .b = chunk.keys_of(op.qkv),
                           .d = chunk.queries(op.dqkv, head),
                           .transpose_b = false},
                          chunk.kv_heads,
                          chunk.score_stride(),
                          chunk.key_stride(),
                          chunk.query_stride()});
  }
}

}  // namespace

void run_unfused_attention(const AttentionBackward& op, std::span<std::byte> workspace,
                           UnfusedAttention& parts) {
  const AttentionShape& s = op.shape;
  const DType dtype = op.qkv.dtype;
  const AttentionChunk size =
      unfused_attention_chunk(op, static_cast<std::int64_t>(workspace.size()));
  const ChunkBytes bytes = chunk_bytes(s, dtype, size);
  const bool in_place = dtype == DType::f32;
  BumpAllocator allocator(workspace);
  std::byte* const scores = allocator.take(bytes.scores);
  std::byte* const dprobabilities = allocator.take(bytes.scores);
  std::byte* const probabilities = in_place ? scores : allocator.take(bytes.probabilities);
  std::byte* const dscores = in_place ? dprobabilities : allocator.take(bytes.probabilities);
  std::byte* const keys = allocator.take(bytes.key_gradients);
  std::byte* const values = allocator.take(bytes.key_gradients);

  parts.run(RowSum{s, op.dout, op.out, op.row_sum});
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for_parts(s.kv_heads, size.kv_heads, [&](std::int64_t first, std::int64_t count) {
      const std::int64_t width = count * s.head_dim;
      const KeyGradients gradients{
          part_of(op.dqkv, batch * s.seq, s.seq, (s.q_heads + first) * s.head_dim, width),
          part_of(op.dqkv, batch * s.seq, s.seq, (s.q_heads + s.kv_heads + first) * s.head_dim,
                  width)};
      const KeyGradients scratch{{keys, DType::f32, s.seq, width, width},
                                 {values, DType::f32, s.seq, width, width}};
      const KeyGradients& sums = in_place ? gradients : scratch;
      for_chunks(s, size, batch, first, count, [&](const Chunk& chunk, bool is_first) {
        run_backward_chunk(op, chunk, is_first, scores, dprobabilities, probabilities, dscores,
                           sums, parts);
      });
      if (in_place) return;
      parts.run(Cast{scratch.keys, gradients.keys});
      parts.run(Cast{scratch.values, gradients.values});
    });
  }
}

std::vector<BatchedGemm> unfused_attention_gemms(const AttentionForward& op,
                                                 std::span<std::byte> workspace) {
  return gemms_of(op, workspace);
}
std::vector<BatchedGemm> unfused_attention_gemms(const AttentionBackward& op,
                                                 std::span<std::byte> workspace) {
  return gemms_of(op, workspace);
}

}  // namespace tessera::trainer::cuda
