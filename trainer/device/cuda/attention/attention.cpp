// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/attention/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lib/base/error.h"
#include "trainer/device/cuda/launch.h"
#include "trainer/device/cuda/workspace.h"

namespace tessera::trainer::cuda {

namespace {

const char* pass_of(const AttentionForward& /*op*/) {
  return "attention_forward";
}
const char* pass_of(const AttentionBackward& /*op*/) {
  return "attention_backward";
}

// Returns "attention_forward b8 s2048 h32/8 d128 bf16 alibi".
template <class Operation>
std::string in_words(const Operation& op) {
  const AttentionShape& s = op.shape;
  return fmt::format("{} b{} s{} h{}/{} d{} {}{}", pass_of(op), s.batch, s.seq, s.q_heads,
                     s.kv_heads, s.head_dim, to_text(op.qkv.dtype),
                     s.alibi_bias_max > 0 ? " alibi" : "");
}

// The alignment of all matrices of a batch. More than 16 bytes are not told apart (same_plan).
int common_alignment(int first, std::int64_t stride, DType dtype) {
  constexpr int kMost = 16;
  const std::int64_t stride_bytes = stride * bytes_of(dtype);
  int alignment = std::min(first, kMost);
  while (stride_bytes % alignment != 0) alignment /= 2;
  return alignment;
}

// Returns the shape of a batch: that of its first GEMM, and the strides to the next.
GemmShape batched_shape(const BatchedGemm& op, bool tf32) {
  GemmShape shape = shape_of(op.first, tf32);
  shape.batch = op.batch;
  shape.stride_a = op.a_stride;
  shape.stride_b = op.b_stride;
  shape.stride_d = op.d_stride;
  shape.align_a = common_alignment(shape.align_a, op.a_stride, op.first.a.dtype);
  shape.align_b = common_alignment(shape.align_b, op.b_stride, op.first.b.dtype);
  shape.align_d = common_alignment(shape.align_d, op.d_stride, op.first.d.dtype);
  return shape;
}

// Runs unfused attention's GEMMs and kernels on a stream.
class StreamExecutor final : public UnfusedAttention {
 public:
  // is_first: the run before the first step, which loads the GEMMs' kernels.
  StreamExecutor(GemmPlans& gemms, bool tf32, const Launch& where, bool is_first)
      : gemms_(gemms), tf32_(tf32), where_(where), is_first_(is_first) {}

  void run(const BatchedGemm& op) override {
    const GemmOperands operands{.a = op.first.a.data,
                                .b = op.first.b.data,
                                .d = op.first.d.data,
                                .bias = nullptr,
                                .pre = nullptr};
    const GemmShape shape = batched_shape(op, tf32_);
    auto* const stream = static_cast<cudaStream_t>(where_.stream);
    if (is_first_) return gemms_.launch_first(shape, operands, stream);
    gemms_.run(shape, operands, stream);
  }
  void run(const SoftmaxForward& op) override { gpu::run(op, where_); }
  void run(const SoftmaxBackward& op) override { gpu::run(op, where_); }
  void run(const RowSum& op) override { gpu::run(op, where_); }
  void run(const Cast& op) override { gpu::run(op, where_); }

 private:
  GemmPlans& gemms_;
  bool tf32_;
  Launch where_;
  bool is_first_;
};

// Loads the own kernels of unfused attention and skips its GEMMs.
class KernelLoader final : public UnfusedAttention {
 public:
  explicit KernelLoader(const Launch& where) : where_(where) { where_.load_only = true; }
  void run(const BatchedGemm& /*op*/) override {}
  void run(const SoftmaxForward& op) override { gpu::run(op, where_); }
  void run(const SoftmaxBackward& op) override { gpu::run(op, where_); }
  void run(const RowSum& op) override { gpu::run(op, where_); }
  void run(const Cast& op) override { gpu::run(op, where_); }

 private:
  Launch where_;
};

}  // namespace

Attention::Attention(const AttentionOptions& options, GemmPlans& gemms)
    : options_(options), gemms_(gemms) {
#if TESSERA_HAS_CUDNN
  if (!options.use_cudnn) {
    no_cudnn_ = "not asked for";
    return;
  }
  // If cuDNN cannot be used, all operations run unfused.
  try {
    fused_ = std::make_unique<AttentionPlans>(options.compute_capability, options.deterministic);
  } catch (const Error& error) {
    if (error.code() != ExitCode::unsupported) throw;
    no_cudnn_ = error.what();
  }
#else
  no_cudnn_ = "the trainer was built without cuDNN";
#endif
}

Attention::~Attention() = default;

// Returns why cuDNN does not take the operation; nothing if it does.
template <class Operation>
std::optional<std::string> Attention::refusal([[maybe_unused]] const Operation& op) {
  if (!no_cudnn_.empty()) return "no cuDNN: " + no_cudnn_;
#if TESSERA_HAS_CUDNN
  if (auto reason = fused_->refusal(op)) return reason;
#endif
  return std::nullopt;
}

// The workspace serves both paths, because prepare may fall back from cuDNN to unfused.
template <class Operation>
std::int64_t Attention::workspace_of(const Operation& op) {
  std::int64_t bytes = workspace_with(unfused_attention_workspace_bytes(op));
#if TESSERA_HAS_CUDNN
  if (!refusal(op)) bytes = std::max(bytes, fused_->workspace_bytes(op));
#endif
  return bytes;
}

template <class Operation>
void Attention::prepare_one(const Operation& op, std::span<std::byte> workspace,
                            std::vector<GemmShape>& shapes) {
  workspace_ = workspace;
  auto reason = refusal(op);
#if TESSERA_HAS_CUDNN
  if (!reason) {
    try {
      return fused_->prepare(op, workspace);
    } catch (const Error& error) {
      // cuDNN offered engines but supports none of them: the log says so and the operation runs
      // unfused.
      if (error.code() != ExitCode::unsupported) throw;
      reason = error.what();
    }
  }
#endif
  // Unfused: remember why, add the GEMMs and load our own kernels.
  is_unfused_.insert(fingerprint(op));
  unfused_reasons_[in_words(op)] = *reason;
  const std::span<std::byte> own = parts_of(workspace).attention;
  for (const BatchedGemm& gemm : unfused_attention_gemms(op, own))
    shapes.push_back(batched_shape(gemm, options_.tf32));
  KernelLoader loading({.stream = nullptr, .multiprocessors = options_.multiprocessors});
  run_unfused_attention(op, own, loading);
}

// Runs the operation as prepare_one has chosen.
template <class Operation>
void Attention::run_one(const Operation& op, cudaStream_t stream, bool is_first) {
#if TESSERA_HAS_CUDNN
  if (!is_unfused_.contains(fingerprint(op))) return fused_->run(op, stream);
#endif
  StreamExecutor parts(gemms_, options_.tf32,
                       {.stream = stream, .multiprocessors = options_.multiprocessors}, is_first);
  run_unfused_attention(op, parts_of(workspace_).attention, parts);
}

std::int64_t Attention::workspace_bytes(const AttentionForward& op) {
  return workspace_of(op);
}
std::int64_t Attention::workspace_bytes(const AttentionBackward& op) {
  return workspace_of(op);
}
void Attention::prepare(const AttentionForward& op, std::span<std::byte> workspace,
                        std::vector<GemmShape>& shapes) {
  prepare_one(op, workspace, shapes);
}
void Attention::prepare(const AttentionBackward& op, std::span<std::byte> workspace,
                        std::vector<GemmShape>& shapes) {
  prepare_one(op, workspace, shapes);
}
void Attention::run(const AttentionForward& op, cudaStream_t stream) {
  run_one(op, stream, false);
}
void Attention::run(const AttentionBackward& op, cudaStream_t stream) {
  run_one(op, stream, false);
}
void Attention::launch_first(const AttentionForward& op, cudaStream_t stream) {
  run_one(op, stream, true);
}
void Attention::launch_first(const AttentionBackward& op, cudaStream_t stream) {
  run_one(op, stream, true);
}

std::vector<GpuChoice> Attention::choices() const {
  std::vector<GpuChoice> all;
#if TESSERA_HAS_CUDNN
  if (fused_) {
    for (const AttentionChoice& choice : fused_->choices()) {
      all.push_back({.op = "attention",
                     .shape = choice.graph,
                     .choice = fmt::format("cuDNN {}, {} bytes of workspace", choice.engine,
                                           choice.workspace_bytes),
                     .from = fmt::format("number {} of {}", choice.rank + 1, choice.offered),
                     .seconds = {}});
    }
  }
#endif
  for (const auto& [operation, reason] : unfused_reasons_) {
    all.push_back({.op = "attention",
                   .shape = operation,
                   .choice = "matrix products and softmax",
                   .from = reason,
                   .seconds = {}});
  }
  return all;
}

std::string Attention::name() const {
  bool fused = false;
#if TESSERA_HAS_CUDNN
  fused = fused_ && !fused_->choices().empty();
#endif
  if (fused) return unfused_reasons_.empty() ? "cudnn" : "cudnn+gemm";
  return unfused_reasons_.empty() ? "none" : "gemm";
}

}  // namespace tessera::trainer::cuda
