// SPDX-License-Identifier: Apache-2.0
// Attention on the GPU: cuDNN's fused kernels if cuDNN takes the operation, otherwise GEMMs and our
// own softmax kernels. The log says which, and why.
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
  bool tf32 = false;           // of GEMMs in f32
  bool use_cudnn = true;       // false: always unfused, to check cuDNN against
  int compute_capability = 0;  // 90 for 9.0
  int multiprocessors = 1;
};

// One thread, one stream at a time. `gemms` runs the GEMMs of unfused attention and outlives it.
class Attention {
 public:
  Attention(const AttentionOptions& options, GemmPlans& gemms);
  ~Attention();

  // Returns the bytes that the operation needs, enough for the unfused fallback too.
  std::int64_t workspace_bytes(const AttentionForward& op);
  std::int64_t workspace_bytes(const AttentionBackward& op);

  // Chooses how the operation runs. It adds to `shapes` the GEMMs that run will need; the caller
  // prepares them with the GEMMs' part of the same workspace (workspace.h). Error(unsupported) if
  // that is too small. If cuDNN has no engine for an operation, it runs unfused. If cuDNN has
  // engines and they fail, that is an error: an unfused run would be reported as something it is
  // not.
  void prepare(const AttentionForward& op, std::span<std::byte> workspace,
               std::vector<GemmShape>& shapes);
  void prepare(const AttentionBackward& op, std::span<std::byte> workspace,
               std::vector<GemmShape>& shapes);

  void run(const AttentionForward& op, cudaStream_t stream);
  void run(const AttentionBackward& op, cudaStream_t stream);
  // Runs the operation before the first step (GemmPlans::launch_first).
  void launch_first(const AttentionForward& op, cudaStream_t stream);
  void launch_first(const AttentionBackward& op, cudaStream_t stream);

  std::vector<GpuChoice> choices() const;
  // Returns "cudnn", "gemm" or "cudnn+gemm", and "none" before prepare.
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
  std::string no_cudnn_;  // why cuDNN cannot be used at all; empty: it can
#if TESSERA_HAS_CUDNN
  std::unique_ptr<AttentionPlans> fused_;
#endif
  std::span<std::byte> workspace_;
  std::unordered_set<Fingerprint, FingerprintHash> is_unfused_;  // that run unfused
  std::map<std::string, std::string> unfused_reasons_;  // operation in words: why it is unfused
};

}  // namespace tessera::trainer::cuda
