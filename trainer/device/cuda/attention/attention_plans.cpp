// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/attention/attention_plans.h"

#include <fmt/format.h>

#include <utility>

#include "lib/base/error.h"
#include "trainer/device/cuda/libraries/cudnn_library.h"
#include "trainer/device/cuda/libraries/libraries.h"

namespace tessera::trainer::cuda {

void AttentionPlans::Destroy::operator()(cudnnContext* handle) const {
  cudnn().cudnnDestroy(handle);
}

AttentionPlans::AttentionPlans(int compute_capability, bool deterministic)
    : deterministic_(deterministic) {
  if (const auto why = why_too_old(cudnn().cudnnGetVersion())) {
    throw Error(ExitCode::unsupported, cudnn().path.string(), *why);
  }
  gpu_.compute_capability = compute_capability;
  handle_.reset(create_cudnn_handle());
  gpu_.handle = handle_.get();
}

// Builds a key's graph once and asks cuDNN for its engines.
AttentionPlans::Graph& AttentionPlans::graph_of(const AttentionGraphKey& key) {
  const auto found = graphs_.find(key);
  if (found != graphs_.end()) return found->second;
  Graph graph{OperationGraph(attention_graph(key), gpu_.handle), {}, {}};
  graph.configs = attention_configs(graph.graph, key.pass, gpu_);
  return graphs_.emplace(key, std::move(graph)).first->second;
}

std::optional<std::string> AttentionPlans::refusal(const AttentionGraphKey& key) {
  if (auto why = why_unsupported(key)) return why;
  if (!graph_of(key).configs.empty()) return std::nullopt;
  return fmt::format("cuDNN {} has no engine for {} on a GPU of compute capability {}.{}",
                     cudnn().version, to_text(key), gpu_.compute_capability / 10,
                     gpu_.compute_capability % 10);
}

// The workspace holds the sums of the query gradient first, then cuDNN's own scratch.
std::int64_t AttentionPlans::workspace_bytes(const AttentionGraphKey& key) {
  const Graph& graph = graph_of(key);
  const std::int64_t plan = graph.configs.empty() ? 0 : graph.configs.front().workspace_bytes;
  return memory::query_gradient_sums_bytes(size_of(key)) +
         memory::up_to_multiple(plan, memory::kWorkspaceAlignment);
}

// Compiles a plan at the first use of a key; later operations of the key share it.
const Plan& AttentionPlans::plan_of(const AttentionGraphKey& key, std::int64_t room) {
  Graph& graph = graph_of(key);
  if (!graph.chosen) {
    graph.chosen = choose_plan(graph.configs, gpu_, room, to_text(key));
  }
  if (graph.chosen->plan.workspace_bytes > room) {
    throw Error(ExitCode::internal, "attention",
                fmt::format("{}: a plan for {} bytes of workspace is asked to run with {}",
                            to_text(key), graph.chosen->plan.workspace_bytes, room));
  }
  return graph.chosen->plan;
}

// Everything that can fail fails here: support, alignment, room. The variant pack binds the
// operation's addresses, so that a run in a step only launches.
template <class Operation, class Bind>
void AttentionPlans::prepare(const Operation& op, const AttentionGraphKey& key,
                             std::span<std::byte> workspace, const Bind& bind) {
  if (const auto why = refusal(key)) {
    throw Error(ExitCode::unsupported, "attention", *why);
  }
  const std::int64_t sums = memory::query_gradient_sums_bytes(size_of(key));
  const auto misaligned = [](const void* p, std::uintptr_t to) {
    return reinterpret_cast<std::uintptr_t>(p) % to != 0;
  };
  if (misaligned(workspace.data(), memory::kWorkspaceAlignment)) {
    throw Error(
        ExitCode::internal, "attention",
        fmt::format("the workspace is not aligned to {} bytes", memory::kWorkspaceAlignment));
  }
  if (std::ssize(workspace) < sums) {
    throw Error(
        ExitCode::unsupported, "attention",
        fmt::format("{}: sums of the query gradient need {} bytes of workspace, there are {}",
                    to_text(key), sums, workspace.size()));
  }
  const Plan& plan = plan_of(key, std::ssize(workspace) - sums);
  Prepared& prepared = prepared_[fingerprint(Op(op))];
  prepared.pack.reset();
  prepared.plan = &plan;
  const std::vector<Binding> bindings =
      bind(sums > 0 ? workspace.data() : nullptr, prepared.scalars);
  for (const Binding& b : bindings) {
    const bool by_value =
        b.id == attention_id::scale || b.id == attention_id::masked || b.id == attention_id::one;
    if (!by_value && misaligned(b.address, kTensorAlignment)) {
      throw Error(
          ExitCode::internal, "attention",
          fmt::format("{}: a tensor is not aligned to {} bytes", to_text(key), kTensorAlignment));
    }
  }
  prepared.pack = variant_pack(bindings, workspace.data() + sums);
}

template <class Operation>
void AttentionPlans::run_prepared(const Operation& op, cudaStream_t stream) {
  const auto found = prepared_.find(fingerprint(Op(op)));
  if (found == prepared_.end() || !found->second.pack) {
    throw Error(ExitCode::internal, "attention", "was not prepared");
  }
  // A handle's stream is set only when it changes.
  if (stream_ != stream) {
    check_cudnn(cudnn().cudnnSetStream(gpu_.handle, stream), "the stream cannot be set");
    stream_ = stream;
  }
  check_cudnn(cudnn().cudnnBackendExecute(gpu_.handle, found->second.plan->descriptor.raw(),
                                          found->second.pack->raw()),
              "attention cannot be run");
}

std::optional<std::string> AttentionPlans::refusal(const AttentionForward& op) {
  return refusal(key_of(op));
}
std::optional<std::string> AttentionPlans::refusal(const AttentionBackward& op) {
  return refusal(key_of(op, deterministic_));
}

std::int64_t AttentionPlans::workspace_bytes(const AttentionForward& op) {
  return workspace_bytes(key_of(op));
}
std::int64_t AttentionPlans::workspace_bytes(const AttentionBackward& op) {
  return workspace_bytes(key_of(op, deterministic_));
}

void AttentionPlans::prepare(const AttentionForward& op, std::span<std::byte> workspace) {
  prepare(op, key_of(op), workspace,
          [&](void*, AttentionScalars& scalars) { return bindings(op, scalars); });
}
void AttentionPlans::prepare(const AttentionBackward& op, std::span<std::byte> workspace) {
  prepare(op, key_of(op, deterministic_), workspace,
          [&](void* sums, AttentionScalars& scalars) { return bindings(op, sums, scalars); });
}

void AttentionPlans::run(const AttentionForward& op, cudaStream_t stream) {
  run_prepared(op, stream);
}
void AttentionPlans::run(const AttentionBackward& op, cudaStream_t stream) {
  run_prepared(op, stream);
}

std::vector<AttentionChoice> AttentionPlans::choices() const {
  std::vector<AttentionChoice> all;
  for (const auto& [key, graph] : graphs_) {
    if (!graph.chosen) continue;
    const std::int64_t bytes = graph.chosen->plan.workspace_bytes;
    all.push_back({to_text(key), to_text(graph.configs[graph.chosen->choice]), graph.chosen->choice,
                   graph.configs.size(), bytes,
                   memory::query_gradient_sums_bytes(size_of(key)) +
                       memory::up_to_multiple(bytes, memory::kWorkspaceAlignment)});
  }
  return all;
}

}  // namespace tessera::trainer::cuda
