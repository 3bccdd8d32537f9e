// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/attention/attention_engines.h"

#include <fmt/format.h>

#include <utility>

#include "lib/base/error.h"
#include "trainer/device/cuda/libraries/libraries.h"

namespace tessera::trainer::cuda {

namespace {

// The Blackwell engine that computes the scores' gradients twice instead of adding to sums in any
// order. The heuristics do not offer it; NVIDIA's front end asks for it by these numbers too.
std::optional<EngineConfig> blackwell_deterministic(const OperationGraph& graph, const Gpu& gpu) {
  constexpr std::int64_t kEngine = 5;
  if (cudnn().cudnnGetVersion() < 92300) {
    constexpr Knob kKnobs[] = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}};
    return fixed_config(graph, gpu, kEngine, kKnobs);
  }
  constexpr Knob kKnobs[] = {{CUDNN_KNOB_TYPE_TILE_M, 3},     {CUDNN_KNOB_TYPE_TILE_N, 2},
                             {CUDNN_KNOB_TYPE_KERNEL_CFG, 2}, {CUDNN_KNOB_TYPE_STREAM_K, 0},
                             {CUDNN_KNOB_TYPE_TILE_CGA_M, 0}, {CUDNN_KNOB_TYPE_STAGES, 2}};
  return fixed_config(graph, gpu, kEngine, kKnobs);
}

}  // namespace

std::vector<EngineConfig> attention_configs(const OperationGraph& graph, AttentionPass pass,
                                            const Gpu& gpu) {
  std::vector<EngineConfig> configs;
  const bool blackwell = gpu.compute_capability == 100 || gpu.compute_capability == 103;
  if (blackwell && pass == AttentionPass::backward_deterministic) {
    if (auto fixed = blackwell_deterministic(graph, gpu)) configs.push_back(std::move(*fixed));
  }
  for (EngineConfig& config : heuristic_configs(graph, gpu)) configs.push_back(std::move(config));
  return configs;
}

AttentionPlan choose_plan(const std::vector<EngineConfig>& configs, const Gpu& gpu,
                          std::int64_t room, std::string_view graph_text) {
  ExitCode code = ExitCode::unsupported;
  std::string reasons;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    std::int64_t need = configs[i].workspace_bytes;
    std::string reason;
    if (need <= room) {
      PlanAttempt attempt = try_plan(configs[i], gpu);
      if (attempt.plan) {
        need = attempt.plan->workspace_bytes;
        if (need <= room) return {std::move(*attempt.plan), i};
      } else {
        if (!is_unsupported(attempt.status)) code = ExitCode::failed;
        reason = std::move(attempt.message);
      }
    }
    if (reason.empty()) reason = fmt::format("needs {} bytes of workspace", need);
    reasons += fmt::format("; {}: {}", to_text(configs[i]), reason);
  }
  throw Error(code, "attention",
              fmt::format("cuDNN {} has no plan for {} on a GPU of compute capability {}.{} with "
                          "{} bytes of workspace{}",
                          cudnn().version, graph_text, gpu.compute_capability / 10,
                          gpu.compute_capability % 10, room,
                          configs.empty() ? "; it offers no engine" : reasons));
}

}  // namespace tessera::trainer::cuda
