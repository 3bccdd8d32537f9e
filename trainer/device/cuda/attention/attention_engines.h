// SPDX-License-Identifier: Apache-2.0
// The choice of cuDNN's engine for an attention graph on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/device/cuda/attention/attention_graph.h"
#include "trainer/device/cuda/attention/cudnn_graph.h"

namespace tessera::trainer::cuda {

// Returns the engine configurations that cuDNN offers, in the order to try them. Empty if cuDNN
// cannot run the graph on that GPU.
std::vector<EngineConfig> attention_configs(const OperationGraph& graph, AttentionPass pass,
                                            const Gpu& gpu);

struct AttentionPlan {
  Plan plan;
  std::size_t choice = 0;  // index of its engine in `configs`
};

// Returns the first engine that becomes a plan with at most `room` bytes of workspace.
// Error(unsupported) if there is none, Error(failed) if one fails for another reason than being
// unsupported. Both name the graph and say for each engine what was wrong.
AttentionPlan choose_plan(const std::vector<EngineConfig>& configs, const Gpu& gpu,
                          std::int64_t room, std::string_view graph_text);

}  // namespace tessera::trainer::cuda
