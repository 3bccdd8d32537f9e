// SPDX-License-Identifier: Apache-2.0
// Attention with and without ALiBi, grouped or not, and rotary positions.
#include <cmath>

#include "trainer/selftest/cases.h"

namespace tessera::trainer::test {
namespace {

Case attention(std::int64_t batch, std::int64_t seq, std::int64_t q_heads, std::int64_t kv_heads,
               std::int64_t head_dim, float alibi_bias_max = 0, std::int64_t gap = 1) {
  Case c;
  c.name = "attention batch " + std::to_string(batch) + " seq " + std::to_string(seq) + " heads " +
           std::to_string(q_heads) + "/" + std::to_string(kv_heads) + "x" +
           std::to_string(head_dim) + (alibi_bias_max > 0 ? " alibi" : "");
  c.build = [=](Arena& a) {
    const AttentionShape s{batch,         seq,      q_heads,
                           kv_heads,      head_dim, 1 / std::sqrt(static_cast<float>(head_dim)),
                           alibi_bias_max};
    const std::int64_t width = (q_heads + 2 * kv_heads) * head_dim;
    const Tensor qkv = a.in("qkv", batch * seq, width, 1.5, 0, 2 * gap);
    const Tensor out = a.out("out", batch * seq, q_heads * head_dim, gap);
    const Tensor lse = a.statistics("lse", batch * q_heads, seq);
    const Tensor dout = a.in("dout", batch * seq, q_heads * head_dim);
    Tensor row_sum = a.scratch(batch * q_heads * seq);
    row_sum.rows = batch * q_heads;
    row_sum.cols = row_sum.ld = seq;
    return std::vector<Op>{AttentionForward{s, qkv, out, lse},
                           AttentionBackward{s, qkv, out, lse, dout,
                                             a.out("dqkv", batch * seq, width, 3 * gap), row_sum}};
  };
  c.objective = {{"out", "dout"}};
  c.gradients = {{"qkv", "dqkv"}};
  c.f32_tolerance = 4e-6;
  c.bf16_tolerance = 6e-3;
  return c;
}

// Forward and backward, of which the latter is the gradient: a rotation's transpose.
Case rope(std::int64_t batch, std::int64_t seq, std::int64_t q_heads, std::int64_t kv_heads,
          std::int64_t head_dim, double theta, std::int64_t gap = 1) {
  Case c;
  c.name = "rope batch " + std::to_string(batch) + " seq " + std::to_string(seq) + " heads " +
           std::to_string(q_heads) + "/" + std::to_string(kv_heads) + "x" +
           std::to_string(head_dim) + " theta " + std::to_string(theta);
  c.build = [=](Arena& a) {
    const AttentionShape s{batch, seq, q_heads, kv_heads, head_dim};
    const std::int64_t width = (q_heads + 2 * kv_heads) * head_dim;
    const Tensor x = a.in("x", batch * seq, width, 1, 0, 3 * gap);
    const Tensor dy = a.in("dy", batch * seq, width, 1);
    const Tensor y = a.out("y", batch * seq, width, 2 * gap);
    const Tensor dx = a.out("dx", batch * seq, width);
    return std::vector<Op>{Cast{x, y}, Rope{s, y, theta}, Cast{dy, dx}, Rope{s, dx, theta, true}};
  };
  c.objective = {{"y", "dy"}};
  c.gradients = {{"x", "dx"}};
  return c;
}

}  // namespace

std::vector<Case> attention_cases() {
  return {attention(2, 64, 2, 2, 32),        attention(1, 77, 3, 3, 16),
          attention(2, 131, 4, 2, 24),       attention(1, 200, 3, 1, 80),
          attention(2, 1, 2, 1, 8),          attention(50, 2, 2, 1, 8),
          attention(1, 17, 1, 1, 5),         attention(2, 150, 4, 4, 16, 8),
          attention(1, 70, 6, 2, 16, 8),     attention(1, 140, 2, 1, 16, 8),
          attention(1, 136, 4, 2, 64, 0, 8), attention(1, 96, 2, 2, 128, 8, 8),
          attention(2, 88, 3, 3, 64, 0, 8),  attention(1, 64, 2, 1, 160, 0, 8),
          rope(2, 33, 3, 1, 16, 10000),      rope(1, 1, 1, 1, 2, 10000),
          rope(1, 300, 2, 2, 64, 1e6),       rope(2, 20, 9, 3, 64, 5e5, 8),
          rope(2, 5, 2, 1, 272, 10000, 8),   rope(2, 5, 2, 1, 262, 10000),
          rope(2, 3, 12, 2, 160, 10000),     rope(1, 2, 12, 3, 154, 10000)};
}

std::vector<Case> fused_attention_cases() {
  return {attention(2, 256, 4, 4, 64, 0, 0),   attention(2, 256, 8, 2, 128, 0, 0),
          attention(1, 1024, 4, 4, 128, 0, 0), attention(1, 384, 4, 1, 64, 0, 0),
          attention(1, 256, 2, 2, 80, 0, 0),   attention(1, 256, 2, 2, 96, 0, 0),
          attention(1, 256, 2, 2, 112, 0, 0),  attention(1, 256, 2, 2, 256, 0, 0),
          attention(1, 200, 4, 2, 64, 0, 0),   attention(3, 128, 2, 2, 64, 0, 8)};
}

std::vector<Case> decoder_attention_cases(const DecoderShape& s) {
  constexpr double kTheta = 10000;
  Case positions = rope(s.sequences, s.seq, s.q_heads, s.kv_heads, s.head_dim, kTheta, 0);
  positions.time(1);
  Case plain = attention(s.sequences, s.seq, s.q_heads, s.kv_heads, s.head_dim, 0, 0);
  plain.time(0);
  plain.time(1);
  return {positions, plain};
}

}  // namespace tessera::trainer::test
