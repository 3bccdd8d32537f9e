// Attention on the GPU: by cuDNN's fused kernels where it takes an operation, else by matrix
// products and softmax kernels of our own. Which, and why, is told for the log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "trainer/device/cuda/attention/attention_unfused.h"
#include "trainer/device/cuda/gemm/gemm.h"
#include "trainer/device/fingerprint.h"
#include "trainer/device/gpu.h"
#if TESSERA_HAS_CUDNN
#include "trainer/device/cuda/attention/attention_plans.h"
#endif

namespace tessera::trainer::cuda {

struct AttentionOptions {
  bool deterministic = false;
  bool tf32 = false;           // of products in f32
  bool use_cudnn = true;       // false: products alone, to check cuDNN against
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 1;
};

// One thread, one stream at a time. gemms: runs the products of what is not fused; outlives it.
class Attention {
 public:
  Attention(const AttentionOptions& options, GemmPlans& gemms);
  ~Attention();

  // Also what does without cuDNN, should it fail.
  std::int64_t workspace_bytes(const AttentionForward& op);
  std::int64_t workspace_bytes(const AttentionBackward& op);

  // The shapes of the products that run will need are added to `shapes`: whoever prepares them has
  // to, with the products' part of the same workspace (workspace.h). Error(unsupported) if that is
  // too small. An operation that cuDNN has no engine for is done without it; where it has engines
  // and they fail, the error says how: that would be measured as something else than it is.
  void prepare(const AttentionForward& op, std::span<std::byte> workspace,
               std::vector<GemmShape>& shapes);
  void prepare(const AttentionBackward& op, std::span<std::byte> workspace,
               std::vector<GemmShape>& shapes);

  void run(const AttentionForward& op, cudaStream_t stream);
  void run(const AttentionBackward& op, cudaStream_t stream);
  // As run, before the first step (GemmPlans::launch_first).
  void launch_first(const AttentionForward& op, cudaStream_t stream);
  void launch_first(const AttentionBackward& op, cudaStream_t stream);

  std::vector<GpuChoice> choices() const;
  // "cudnn", "gemm", "cudnn+gemm"; "none" before prepare.
  std::string name() const;

 private:
  template <class Operation>
  std::optional<std::string> refusal(const Operation& op);
  template <class Operation>
  std::int64_t workspace_of(const Operation& op);
  template <class Operation>
  void prepare_one(const Operation& op, std::span<std::byte> workspace,
                   std::vector<GemmShape>& shapes);
  template <class Operation>
  void run_one(const Operation& op, cudaStream_t stream, bool is_first);

  AttentionOptions options_;
  GemmPlans& gemms_;
  std::string no_cudnn_;  // why it is not there at all; empty: it is
#if TESSERA_HAS_CUDNN
  std::unique_ptr<AttentionPlans> fused_;
#endif
  std::span<std::byte> workspace_;
  std::unordered_set<Fingerprint, FingerprintHash> is_unfused_;  // of prepared operations
  std::map<std::string, std::string> unfused_reasons_;  // operation in words: why it is not fused
};

}  // namespace tessera::trainer::cuda
