// SPDX-License-Identifier: Apache-2.0
// Operations as values: what a device can do, as plain structs of shapes, dtypes and pointers.
//
// All tensors are views, row-major [rows, cols] with unit inner stride and leading dimension ld, in
// device memory. Unless an operation says otherwise
//   * its inputs and outputs do not overlap;
//   * the floating dtypes of its activations are equal (f32, or bf16, or f64 in the CPU's tests),
//     statistics, losses and gradients of parameters are f32 (f64 in f64 instances);
//   * it computes in f32 (f64) and rounds each output element once, to nearest even, when it stores
//     it (docs/precision.md has the rounding points of all);
//   * `accumulate` means output += result, else output = result.
// What varies between steps is read from StepInputs and StepState in device memory, never passed by
// value, so that a step has no branch on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "lib/model/shape.h"
#include "lib/schedule/dtype.h"
#include "trainer/device/parts.h"

namespace tessera::trainer {

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t ld = 0;  // elements from one row to the next, >= cols
  explicit operator bool() const { return data != nullptr; }
};

// One of each on the device for a run. Copied in at each step, by slot.
struct StepInputs {
  float lr = 0;
  float weight_decay =
      0;  // decoupled: theta -= lr * weight_decay * theta, on elements below AdamW::decay_end
  float bias1 = 1;          // 1 - beta1^step
  float bias2 = 1;          // 1 - beta2^step
  float inv_tokens = 0;     // 1 / (loss tokens of the global batch)
  float max_grad_norm = 0;  // clipping threshold; 0: none
  std::int32_t step = 0;    // from 1
};

// Kept on the device, never copied in; the host reads it after the step.
struct StepState {
  float loss = 0;               // mean over the loss tokens of the global batch
  float grad_norm = 0;          // before clipping
  float clip = 1;               // factor on gradients: min(1, max_grad_norm / grad_norm)
  std::int32_t not_finite = 0;  // 1: loss or norm is NaN or infinite, and AdamW leaves all as it is
};

// The function that a GEMM applies to its sums, in f32 and before it rounds them.
enum class GemmEpilogue : std::uint8_t {
  none,
  gelu,   // pre = op(A) op(B) (+ bias), D = gelu_tanh of it: of the f32 sum, not of what pre holds
  dgelu,  // D = gelu_tanh'(pre) op(A) op(B): the slope at what pre holds, times the f32 sum
};

// A pre's leading dimension is a multiple of so many elements and its address of so many bytes: a
// GPU's library demands it.
inline constexpr std::int64_t kPreElements = 8;
inline constexpr std::int64_t kPreAlignment = 16;

// D[m, n] = op(A) op(B) (+ D if accumulate) (+ bias[n] if given); op(A) [m, k] = A or A^T, op(B)
// [k, n] = B or B^T. Weights are stored [out, in], so a linear layer is transpose_b. A and B of one
// dtype (f32, bf16, f64); D of that dtype or, for bf16 inputs, f32. Sums are in f32, one rounding.
//
// With an epilogue pre [m, n] is written (gelu) or read (dgelu); it and D are of A's dtype, each
// rounded once, and there is no accumulate; dgelu has no bias.
struct Gemm {
  Tensor a, b, d;
  bool transpose_a = false;
  bool transpose_b = true;
  bool accumulate = false;
  Tensor bias = {};  // [1, n], dtype of a; not together with accumulate
  GemmEpilogue epilogue = GemmEpilogue::none;
  Tensor pre = {};
};

// dbias[1, n] (+)= sum over rows of dy [rows, n]. partials: f32 scratch, bias_grad_partials(dy)
// elements.
struct BiasGrad {
  Tensor dy, dbias, partials;
  bool accumulate = false;
};

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  float scale = 0;  // of Q K^T
  // ALiBi: each score gets slope x (key - query), slope = alibi_slope(head, q_heads, this). 0:
  // none.
  float alibi_bias_max = 0;
};

// Returns the slope of one of `heads` query heads (ALiBi, Press et al. 2022, as MPT has it):
// 2^(-bias_max (head + 1) / heads) if heads is a power of two. Otherwise the slopes are every
// second one of the next power's, from the second on, then from the first on.
double alibi_slope(std::int64_t head, std::int64_t heads, double bias_max);

// Rotary positions, in place on the q and k columns of qkv: in each head, the pair x[i], x[i + D/2]
// of row t turns by the angle (t mod seq) theta^(-2 i / D), D = head_dim (the order of Llama's and
// Qwen's checkpoints). Angles in f64, one rounding an element. `backward`: by the negative angle,
// which is the gradient.
struct Rope {
  AttentionShape shape;
  Tensor qkv;
  double theta = 10000;
  bool backward = false;
};

// Causal attention. qkv [batch * seq, (q_heads + 2 kv_heads) * head_dim], packed q | k | v; out
// [batch * seq, q_heads * head_dim]; lse [batch * q_heads, seq] f32: log-sum-exp of the scaled
// scores. Scores never exist as a whole; they and the probabilities are f32, also for bf16.
struct AttentionForward {
  AttentionShape shape;
  Tensor qkv, out, lse;
};

// dqkv is laid out like qkv; each element is rounded once, those of keys and values after the sum
// over their query heads. row_sum [batch * q_heads, seq] f32 scratch: sum over head_dim of dout *
// out.
struct AttentionBackward {
  AttentionShape shape;
  Tensor qkv, out, lse, dout, dqkv, row_sum;
};

// sum = x + add, rounded to its dtype; it may be x itself. Without `add` sum is not written and x
// is normalised. y = norm(sum) * gain + bias, of the sum as it is stored. mean (layernorm) and rstd
// [1, rows] f32. gain, bias [1, cols] in the dtype of x.
//
// A wide residual stream has x, sum, gain and bias in f32 beside add and y in bf16. Its sum is f32
// and only y is rounded to bf16.
struct NormForward {
  model::Norm kind = model::Norm::layernorm;
  float eps = 1e-5F;
  Tensor x, add, sum, y, gain, bias, mean, rstd;
};

// dsum = (dsum_in, if given) + the norm's gradient, rounded once; dsum may be dsum_in. `sum` is the
// normalised tensor of the forward pass. dgain, dbias [1, cols] f32; partials: f32 scratch,
// norm_partials(sum) elements. A wide residual stream has sum, gain, dsum_in and dsum in f32 beside
// dy in bf16.
struct NormBackward {
  model::Norm kind = model::Norm::layernorm;
  Tensor dy, dsum_in, sum, gain, mean, rstd, dsum, dgain, dbias, partials;
  bool accumulate = false;  // of dgain and dbias
};

// y = f(x); swiglu: x = [gate | up], y = silu(gate) * up, half as wide.
struct ActForward {
  model::Activation kind = model::Activation::gelu_erf;
  Tensor x, y;
};

// dx = f'(x) dy; dx may be dy (same width) or x.
struct ActBackward {
  model::Activation kind = model::Activation::gelu_erf;
  Tensor x, dy, dx;
};

// y[t] = table[tokens[t]] (+ positions[t mod seq] if given). tokens [1, rows] i32.
struct Embed {
  Tensor tokens, table, positions, y;
  std::int64_t seq = 0;
};

// dtable[v] (+)= sum of dy[t] over the t with tokens[t] = v, in the order of `order`: no atomics,
// always the same bits. Without dtable the table is not trained. order [1, rows] i32: row numbers
// sorted by token, then row; starts [1, table rows + 1] i32: where each token's rows begin in
// `order`. dpositions[p] (+)= sum over the sequences, if given. Both f32 (f64).
struct EmbedBackward {
  Tensor order, starts, dy, dtable, dpositions;
  std::int64_t seq = 0;
  bool accumulate_table = false;
  bool accumulate_positions = false;
};

// logits [rows, padded vocab] become, in place, dlogits = (softmax - one-hot) * inv_tokens; columns
// from `vocab` on are no classes and become 0. targets [1, rows] i32; a negative one means no loss
// in this row. row_loss [1, rows] f32.
struct CrossEntropy {
  Tensor logits, targets, row_loss;
  std::int64_t vocab = 0;
  const StepInputs* in = nullptr;
};

// state->loss (+)= inv_tokens * sum of row_loss, summed in f64 in a fixed order.
struct SumLoss {
  Tensor row_loss;
  const StepInputs* in = nullptr;
  StepState* state = nullptr;
  bool accumulate = false;
};

// dst (+)= src in dst's dtype; shapes are equal. An accumulation is summed in the wider compute
// dtype of the two and rounded once.
struct Cast {
  Tensor src, dst;
  bool accumulate = false;
};

// partials[i], i < squared_norm_partials(x), get the sums of squares of x in f64, by parts of fixed
// size.
struct SquaredNorm {
  Tensor x;
  double* partials = nullptr;
};

// Writes the norm of all parts, the clip factor and finiteness to state.
struct FinishNorm {
  const double* partials = nullptr;
  std::int64_t count = 0;
  const StepInputs* in = nullptr;
  StepState* state = nullptr;
};

// One step of AdamW with decoupled weight decay on a flat buffer [1, n]: master, m, v f32 in place;
// param, if given, is master rounded to its dtype. grad f32, scaled by state->clip. Does nothing if
// state->not_finite.
struct AdamW {
  Tensor grad, master, m, v, param;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float eps = 1e-8F;
  std::int64_t decay_end = 0;
  const StepInputs* in = nullptr;
  const StepState* state = nullptr;
};

// dst[i] = mean + stddev * normal(seed, first_index + i): counter-based, so it is equal on every
// device and for every split.
struct Init {
  Tensor dst;  // ld = cols; bf16: the f32 numbers, rounded
  float mean = 0;
  float stddev = 0;
  std::uint64_t seed = 0;
  std::uint64_t first_index = 0;
};

using Op = std::variant<Gemm, BiasGrad, Rope, AttentionForward, AttentionBackward, NormForward,
                        NormBackward, ActForward, ActBackward, Embed, EmbedBackward, CrossEntropy,
                        SumLoss, Cast, SquaredNorm, FinishNorm, AdamW, Init>;

const char* op_name(const Op& op);  // "gemm", "attention_forward", ...

// The only source of executed FLOPs and of bytes for GB/s. A multiply-add counts 2. Attention
// counts the causal half of its products: 2 forward and 5 backward.
struct Cost {
  double matmul_flops = 0;
  std::int64_t bytes = 0;  // read and written at least
};
Cost cost(const Op& op);

// The byte ranges that an operation reads and writes: the only source of the race checker and of
// the plan's overlap test.
struct Access {
  std::vector<std::span<const std::byte>> reads;
  std::vector<std::span<const std::byte>> writes;
};
Access access(const Op& op);

}  // namespace tessera::trainer
