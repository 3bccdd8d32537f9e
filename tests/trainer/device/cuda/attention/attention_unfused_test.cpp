// SPDX-License-Identifier: Apache-2.0
// How unfused attention is tiled, and which GEMMs and kernels it asks for.
#include "trainer/device/cuda/attention/attention_unfused.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "lib/base/error.h"
#include "lib/memory/scratch.h"
#include "trainer/device/check.h"
#include "trainer/device/cuda/workspace.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::cuda;

namespace {

// Returns a tensor at an address that nobody reads, far from all others.
Tensor somewhere(int number, std::int64_t rows, std::int64_t cols, DType dtype) {
  return {reinterpret_cast<void*>(static_cast<std::uintptr_t>(number) << 40), dtype, rows, cols,
          cols};
}

struct Operations {
  AttentionForward forward;
  AttentionBackward backward;
};

Operations operations(const AttentionShape& s, DType dtype) {
  const Tensor qkv =
      somewhere(1, s.batch * s.seq, (s.q_heads + 2 * s.kv_heads) * s.head_dim, dtype);
  const Tensor out = somewhere(2, s.batch * s.seq, s.q_heads * s.head_dim, dtype);
  const Tensor lse = somewhere(3, s.batch * s.q_heads, s.seq, DType::f32);
  Tensor dout = out;
  dout.data = somewhere(4, 1, 1, dtype).data;
  Tensor dqkv = qkv;
  dqkv.data = somewhere(5, 1, 1, dtype).data;
  return {{s, qkv, out, lse},
          {s, qkv, out, lse, dout, dqkv, somewhere(6, s.batch * s.q_heads, s.seq, DType::f32)}};
}

std::span<std::byte> workspace_of(std::int64_t bytes) {
  return {static_cast<std::byte*>(somewhere(7, 1, 1, DType::f32).data),
          static_cast<std::size_t>(bytes)};
}

// Records which scores are computed, and checks that nothing lies outside of the workspace.
class Follower final : public UnfusedAttention {
 public:
  explicit Follower(std::span<std::byte> workspace) : workspace_(workspace) {}

  void run(const BatchedGemm& op) override {
    for (std::int64_t i = 0; i < op.batch; ++i) {
      Gemm one = op.first;
      move(one.a, i * op.a_stride);
      move(one.b, i * op.b_stride);
      move(one.d, i * op.d_stride);
      check(one);
      for (const Tensor* t : {&one.a, &one.b, &one.d}) within(*t);
      products += static_cast<double>(one.d.rows) * static_cast<double>(one.d.cols) *
                  static_cast<double>(one.transpose_a ? one.a.rows : one.a.cols);
    }
    gemms.push_back(op);
  }
  void run(const SoftmaxForward& op) override {
    take(op.at);
    for (const Tensor* t : {&op.probabilities}) within(*t);
  }
  void run(const SoftmaxBackward& op) override {
    take(op.at);
    for (const Tensor* t : {&op.probabilities, &op.dscores}) within(*t);
  }
  void run(const RowSum&) override { ++row_sums; }
  void run(const Cast& op) override {
    check(op);
    within(op.src);
  }

  std::vector<BatchedGemm> gemms;
  double products = 0;     // multiply-adds
  std::int64_t cells = 0;  // of scores
  int row_sums = 0;
  // How often each (sequence, head, query) was computed.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, int> rows;

 private:
  static void move(Tensor& t, std::int64_t elements) {
    t.data = static_cast<std::byte*>(t.data) + elements * bytes_of(t.dtype);
  }
  void within(const Tensor& t) const {
    const auto* begin = static_cast<const std::byte*>(t.data);
    const auto number = reinterpret_cast<std::uintptr_t>(begin) >> 40;
    if (number != 7) return;
    CHECK(begin + ((t.rows - 1) * t.ld + t.cols) * bytes_of(t.dtype) <=
          workspace_.data() + workspace_.size());
    CHECK(reinterpret_cast<std::uintptr_t>(begin) % 16 == 0);
  }
  void take(const Scores& at) {
    CHECK(at.keys == at.first_row + at.rows);
    CHECK(at.ld % 8 == 0);
    CHECK(at.ld >= at.keys);
    CHECK(reinterpret_cast<std::byte*>(at.scores + at.heads * at.rows * at.ld) <=
          workspace_.data() + workspace_.size());
    cells += at.heads * at.rows * at.keys;
    for (std::int64_t head = 0; head < at.heads; ++head) {
      for (std::int64_t row = 0; row < at.rows; ++row)
        ++rows[{at.batch, at.first_head + head, at.first_row + row}];
    }
  }

  std::span<std::byte> workspace_;
};

template <class Attention>
void follow(const Attention& op, std::int64_t bytes) {
  CAPTURE(bytes);
  const AttentionShape& s = op.shape;
  const AttentionChunk chunk = unfused_attention_chunk(op, bytes);
  CAPTURE(chunk.kv_heads);
  CAPTURE(chunk.group_heads);
  CAPTURE(chunk.rows);
  CHECK(unfused_attention_bytes(op, chunk) <= bytes);
  CHECK((chunk.kv_heads == 1 || chunk.group_heads == s.q_heads / s.kv_heads));
  Follower follower(workspace_of(bytes));
  run_unfused_attention(op, workspace_of(bytes), follower);
  // Every row of scores is computed once.
  CHECK(static_cast<std::int64_t>(follower.rows.size()) == s.batch * s.q_heads * s.seq);
  CHECK(std::all_of(follower.rows.begin(), follower.rows.end(),
                    [](const auto& row) { return row.second == 1; }));
  // Beyond the causal half, only a triangle of each chunk is computed.
  const std::int64_t half = s.seq * (s.seq + 1) / 2;
  CHECK(follower.cells <= s.batch * s.q_heads * (half + s.seq * (chunk.rows - 1) / 2));
  const double products_of_cells =
      (std::is_same_v<Attention, AttentionForward> ? 2.0 : 5.0) * static_cast<double>(s.head_dim);
  CHECK(follower.products == products_of_cells * static_cast<double>(follower.cells));
  CHECK(follower.row_sums == (std::is_same_v<Attention, AttentionForward> ? 0 : 1));
  // Each GEMM has its plan in the list, and no two plans of the list are alike.
  const std::vector<BatchedGemm> listed = unfused_attention_gemms(op, workspace_of(bytes));
  const auto count_in = [](const std::vector<BatchedGemm>& all, const BatchedGemm& gemm) {
    return std::count_if(all.begin(), all.end(),
                         [&](const BatchedGemm& other) { return same_plan(gemm, other); });
  };
  CHECK(std::all_of(follower.gemms.begin(), follower.gemms.end(),
                    [&](const BatchedGemm& gemm) { return count_in(listed, gemm) == 1; }));
}

}  // namespace

TEST_CASE("unfused attention covers every row once within its workspace") {
  for (const AttentionShape& s :
       {AttentionShape{2, 40, 6, 2, 16, 0.25F}, AttentionShape{1, 600, 4, 4, 64, 0.125F},
        AttentionShape{1, 19, 3, 3, 20, 0.2F}, AttentionShape{1, 1, 1, 1, 8, 0.3F},
        AttentionShape{1, 300, 8, 1, 128, 0.1F}}) {
    CAPTURE(s.seq);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Operations op = operations(s, dtype);
      const auto with_each_size = [](const auto& attention) {
        const std::int64_t least = unfused_attention_least_bytes(attention);
        const std::int64_t wanted = unfused_attention_workspace_bytes(attention);
        CHECK(least <= wanted);
        for (const std::int64_t bytes :
             {least, least + 1, (least + wanted) / 2, wanted - 1, wanted, 2 * wanted})
          if (bytes >= least) follow(attention, bytes);
        CHECK_THROWS_AS(unfused_attention_chunk(attention, least - 1), Error);
      };
      with_each_size(op.forward);
      with_each_size(op.backward);
    }
  }
}

TEST_CASE("chunks of attention by the workspace") {
  // 8 heads of 4096 queries: 16-byte rows of scores of 4096 keys, f32 and bf16.
  const AttentionShape s{4, 4096, 8, 4, 64, 0.125F};
  const AttentionForward op = operations(s, DType::bf16).forward;
  const std::int64_t row = 4096 * (4 + 2);
  using Chunk = AttentionChunk;
  CHECK(unfused_attention_chunk(op, 8 * 512 * row) == Chunk{4, 2, 512});
  CHECK(unfused_attention_chunk(op, std::int64_t{1} << 40) == Chunk{4, 2, 512});
  CHECK(unfused_attention_chunk(op, 8 * 512 * row - 1) == Chunk{4, 2, 256});
  CHECK(unfused_attention_chunk(op, 8 * 256 * row - 1) == Chunk{2, 2, 256});
  CHECK(unfused_attention_chunk(op, 4 * 256 * row - 1) == Chunk{1, 2, 256});
  CHECK(unfused_attention_chunk(op, 2 * 256 * row - 1) == Chunk{1, 1, 256});
  CHECK(unfused_attention_chunk(op, 256 * row - 1) == Chunk{1, 1, 240});
  CHECK(unfused_attention_chunk(op, 16 * row) == Chunk{1, 1, 16});
  CHECK(unfused_attention_least_bytes(op) == 16 * row);
  // 512 rows of all heads would take 96 MiB.
  CHECK(unfused_attention_workspace_bytes(op) == std::int64_t{64} << 20);
  // This sequence is so long that 64 MiB are not enough: 16 rows, and dK and dV of a head.
  const AttentionShape long_one{1, 1 << 20, 8, 8, 64, 0.125F};
  const AttentionBackward back = operations(long_one, DType::bf16).backward;
  CHECK(unfused_attention_workspace_bytes(back) == unfused_attention_least_bytes(back));
  CHECK(unfused_attention_least_bytes(back) ==
        (std::int64_t{1} << 20) * (16 * (4 + 4 + 2 + 2) + 2 * 64 * 4));
  // Shares are balanced: 3 + 3 + 2 + 2 heads, not 4 + 4 + 2.
  const AttentionShape ten{1, 4096, 10, 10, 64, 0.125F};
  CHECK(unfused_attention_chunk(operations(ten, DType::f32).forward, 4 * 256 * 4096 * 4) ==
        Chunk{4, 1, 256});
  CHECK(unfused_attention_chunk(operations(ten, DType::f32).forward, 9 * 256 * 4096 * 4) ==
        Chunk{5, 1, 256});
}

TEST_CASE("the workspace that is planned for a GPU is enough for unfused attention") {
  for (const std::int64_t seq : {1, 100, 2048, 8192, 65536, 131072}) {
    for (const std::int64_t head_dim : {8, 64, 80, 128, 256}) {
      for (const std::int64_t heads : {1, 4, 32}) {
        for (const std::int64_t kv_heads : {std::int64_t{1}, heads}) {
          for (const Precision precision :
               {Precision::fp32, Precision::tf32, Precision::amp_bf16}) {
            for (const auto positions : {model::Positions::learned, model::Positions::alibi}) {
              for (const bool deterministic : {false, true}) {
                memory::Config config{.shape = {.d_model = heads * head_dim,
                                                .n_layers = 1,
                                                .n_heads = heads,
                                                .n_kv_heads = kv_heads,
                                                .head_dim = head_dim,
                                                .ffn = 4 * heads * head_dim,
                                                .vocab = 1000,
                                                .positions = positions},
                                      .seq_len = seq,
                                      .device_batch = 1,
                                      .microbatch = 1,
                                      .precision = precision};
                config.target.is_gpu = true;
                config.target.deterministic = deterministic;
                const auto [forward, backward] = operations({1, seq, heads, kv_heads, head_dim, 1},
                                                            memory::compute_dtype(precision));
                CAPTURE(seq);
                CAPTURE(head_dim);
                CAPTURE(heads);
                CAPTURE(kv_heads);
                const std::int64_t whole = memory::scratch(config).workspace;
                const std::int64_t planned = std::ssize(parts_of(workspace_of(whole)).attention);
                CHECK(planned >= unfused_attention_least_bytes(forward));
                CHECK(planned >= unfused_attention_least_bytes(backward));
              }
            }
          }
        }
      }
    }
  }
}
