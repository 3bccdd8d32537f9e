// SPDX-License-Identifier: Apache-2.0
// Attention on one GPU by cuDNN: plans are made before the first step and then only run.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/device/cuda/attention/attention_engines.h"
#include "trainer/device/fingerprint.h"

namespace tessera::trainer::cuda {

// The choice for the operations of one key, for the log.
struct AttentionChoice {
  std::string graph;                 // to_text(AttentionGraphKey)
  std::string engine;                // "engine 6, KERNEL_CFG 26"
  std::size_t rank = 0;              // among the engines offered, from 0
  std::size_t offered = 0;           // engines offered
  std::int64_t plan_bytes = 0;       // workspace that cuDNN uses
  std::int64_t workspace_bytes = 0;  // and with it the sums of the query gradient
};

// Takes operations that trainer/device/check.h accepts. One thread, one stream at a time: all plans
// share the workspace.
class AttentionPlans {
 public:
  // Opens cuDNN for the current CUDA device. compute_capability: 90 for 9.0. deterministic:
  // backward passes give the same bits each time. Error(unsupported): there is no cuDNN, or it is
  // too old. Error(wrong_device): it cannot use the GPU.
  AttentionPlans(int compute_capability, bool deterministic);

  // Returns, as a sentence, why cuDNN cannot run an operation. Nothing: it can; the other functions
  // take only such operations.
  std::optional<std::string> refusal(const AttentionForward& op);
  std::optional<std::string> refusal(const AttentionBackward& op);

  // Workspace bytes of the engine that cuDNN prefers: the f32 sums of the query gradient, then
  // cuDNN's own. At most memory::fused_attention_bytes.
  std::int64_t workspace_bytes(const AttentionForward& op);
  std::int64_t workspace_bytes(const AttentionBackward& op);

  // Takes the first engine that fits the workspace, which is aligned to 256 bytes and stays where
  // it is. Throws the errors of choose_plan.
  void prepare(const AttentionForward& op, std::span<std::byte> workspace);
  void prepare(const AttentionBackward& op, std::span<std::byte> workspace);

  // Launches a prepared operation. Error(internal) if it was not prepared. Allocates nothing.
  void run(const AttentionForward& op, cudaStream_t stream);
  void run(const AttentionBackward& op, cudaStream_t stream);

  std::vector<AttentionChoice> choices() const;

 private:
  struct Graph {
    OperationGraph graph;
    std::vector<EngineConfig> configs;
    std::optional<AttentionPlan> chosen;
  };
  struct Prepared {
    const Plan* plan = nullptr;
    AttentionScalars scalars;  // the variant pack holds their addresses; map nodes never move
    std::optional<Descriptor> pack;
  };
  struct Destroy {
    void operator()(cudnnContext* handle) const;
  };

  std::optional<std::string> refusal(const AttentionGraphKey& key);
  std::int64_t workspace_bytes(const AttentionGraphKey& key);
  Graph& graph_of(const AttentionGraphKey& key);
  const Plan& plan_of(const AttentionGraphKey& key, std::int64_t room);
  template <class Operation, class Bind>
  void prepare(const Operation& op, const AttentionGraphKey& key, std::span<std::byte> workspace,
               const Bind& bind);
  template <class Operation>
  void run_prepared(const Operation& op, cudaStream_t stream);

  bool deterministic_;
  std::unique_ptr<cudnnContext, Destroy> handle_;
  Gpu gpu_;
  std::optional<cudaStream_t> stream_;  // the handle's stream
  std::map<AttentionGraphKey, Graph> graphs_;
  std::unordered_map<Fingerprint, Prepared, FingerprintHash> prepared_;
};

}  // namespace tessera::trainer::cuda
