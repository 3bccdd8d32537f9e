// Which of cuDNN's engines carries out an attention graph on a GPU.
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

// All engines that cuDNN offers, in the order in which they are to be tried; none where it cannot
// carry the graph out on that GPU.
std::vector<EngineConfig> attention_configs(const OperationGraph& graph, AttentionPass pass,
                                            const Gpu& gpu);

struct AttentionPlan {
  Plan plan;
  std::size_t choice = 0;  // index of the engine that it is made of
};

// The first engine that becomes a plan with at most `room` bytes of workspace. Error(unsupported)
// if there is none, Error(failed) if one fails for another reason than being unsupported; both
// name the graph and say for each engine what was wrong.
AttentionPlan choose_plan(const std::vector<EngineConfig>& configs, const Gpu& gpu,
                          std::int64_t room, std::string_view graph_text);

}  // namespace tessera::trainer::cuda
