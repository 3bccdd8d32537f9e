// SPDX-License-Identifier: Apache-2.0
// Asks the real cuDNN, without a GPU, about attention's graphs: which GPUs take them, with which
// engine and how much workspace. cuDNN gets a GPU's properties (tests/data/gpus), and the toolkit's
// stub instead of a driver. It then chooses its engines and compiles their kernels as for the GPU,
// until the stub refuses to load them.
//
// With --no-skip it compiles every plan of the table (minutes).
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "trainer/device/cuda/attention/attention_engines.h"
#include "trainer/device/cuda/libraries/libraries.h"

using namespace tessera;
using namespace tessera::trainer::cuda;

namespace {

struct KnownGpu {
  const char* name;
  int compute_capability;
  // Heads over 128 elements: every GPU takes them in a forward pass, some in a backward pass.
  bool long_heads_backward;
};
constexpr KnownGpu kGpus[] = {
    {"a100", 80, false}, {"h100", 90, true}, {"h200", 90, true}, {"b200", 100, false}};
constexpr AttentionPass kPasses[] = {AttentionPass::forward, AttentionPass::backward,
                                     AttentionPass::backward_deterministic};
constexpr std::int64_t kHeadDims[] = {64, 80, 96, 112, 128, 256};
constexpr std::int64_t kKeyHeads[] = {32, 8};

// Returns what is missing, or nothing. From then on the stub answers for libcuda.so.1.
std::string missing() {
  static const std::string reason = [] {
    if (!std::filesystem::exists(TESSERA_CUDA_STUB)) {
      return fmt::format("the toolkit has no {}", TESSERA_CUDA_STUB);
    }
    if (dlopen(TESSERA_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL) == nullptr) return std::string(dlerror());
    try {
      cudnn();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  return reason;
}

#define SKIP_WITHOUT_CUDNN()                             \
  if (const std::string why = missing(); !why.empty()) { \
    MESSAGE("skipped: " << why);                         \
    return;                                              \
  }

// One of kGpus, described to cuDNN.
struct Absent {
  explicit Absent(const KnownGpu& known)
      : properties(
            device_properties(read_file(fmt::format("tests/data/gpus/{}.json", known.name)))),
        gpu{nullptr, &properties, known.compute_capability} {}
  Descriptor properties;
  Gpu gpu;
};

AttentionGraphKey key_of(AttentionPass pass, std::int64_t batch, std::int64_t seq,
                         std::int64_t q_heads, std::int64_t kv_heads, std::int64_t head_dim) {
  AttentionGraphKey key{pass, batch, seq, q_heads, kv_heads, head_dim};
  key.ld_qkv = (q_heads + 2 * kv_heads) * head_dim;
  key.ld_out = q_heads * head_dim;
  key.ld_lse = seq;
  if (pass == AttentionPass::forward) return key;
  key.ld_dout = key.ld_out;
  key.ld_dqkv = key.ld_qkv;
  key.ld_row_sum = seq;
  return key;
}

constexpr const KnownGpu& kA100 = kGpus[0];
constexpr const KnownGpu& kH100 = kGpus[1];
constexpr const KnownGpu& kB200 = kGpus[3];

bool is_taken(const KnownGpu& gpu, const AttentionGraphKey& key) {
  return key.head_dim <= 128 || key.pass == AttentionPass::forward || gpu.long_heads_backward;
}

// Compiles a plan of the engine that is tried first.
void check_plan(const KnownGpu& known, const AttentionGraphKey& key) {
  CAPTURE(known.name);
  CAPTURE(to_text(key));
  const Absent absent(known);
  const OperationGraph graph(attention_graph(key), nullptr);
  const std::vector<EngineConfig> configs = attention_configs(graph, key.pass, absent.gpu);
  REQUIRE(!configs.empty());
  const PlanAttempt attempt = try_plan(configs.front(), absent.gpu);
  CAPTURE(attempt.message);
  // The stub answers so to the loading of a kernel, the last step of all.
  CHECK(attempt.status == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  CHECK(attempt.message.find("cuLibraryLoadData") != std::string::npos);
}

template <class Run>
Error error_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return Error(ExitCode::internal, "", "");
}

}  // namespace

TEST_CASE("each GPU takes the attention that the table says, within the planned workspace") {
  SKIP_WITHOUT_CUDNN();
  fmt::print(
      "cuDNN {}: batch 2, sequence 2048, 32 heads of queries; bytes of cuDNN's own "
      "workspace\n",
      cudnn().version);
  for (const KnownGpu& known : kGpus) {
    CAPTURE(known.name);
    const Absent absent(known);
    for (const std::int64_t head_dim : kHeadDims) {
      for (const std::int64_t kv_heads : kKeyHeads) {
        for (const AttentionPass pass : kPasses) {
          const AttentionGraphKey key = key_of(pass, 2, 2048, 32, kv_heads, head_dim);
          CAPTURE(to_text(key));
          REQUIRE(!why_unsupported(key));
          const OperationGraph graph(attention_graph(key), nullptr);
          const std::vector<EngineConfig> configs = attention_configs(graph, pass, absent.gpu);
          CHECK(configs.empty() != is_taken(known, key));
          if (configs.empty()) {
            fmt::print("{} {:44} refused\n", known.name, to_text(key));
            continue;
          }
          const std::int64_t bytes = configs.front().workspace_bytes;
          const std::int64_t planned =
              memory::fused_attention_plan_bytes(size_of(key), known.compute_capability);
          fmt::print("{} {:44} {:11}  {} ({} offered)\n", known.name, to_text(key), bytes,
                     to_text(configs.front()), configs.size());
          CHECK(bytes <= planned);
          CHECK(planned - bytes <= 2 * memory::kWorkspaceAlignment);
        }
      }
    }
  }
}

TEST_CASE("the planned workspace is enough for sequences, batches and heads of any size") {
  SKIP_WITHOUT_CUDNN();
  struct Size {
    std::int64_t batch, seq, q_heads, kv_heads, head_dim;
  };
  constexpr Size kSizes[] = {
      {2, 2, 4, 4, 64},     {2, 63, 4, 2, 64},     {1, 100, 8, 8, 64},     {1, 128, 8, 2, 128},
      {3, 129, 6, 6, 48},   {5, 200, 16, 1, 96},   {3, 1000, 8, 2, 72},    {3, 2000, 8, 2, 88},
      {7, 1536, 12, 12, 8}, {8, 2048, 32, 8, 128}, {1, 32768, 32, 8, 128}, {1, 65536, 32, 32, 128}};
  for (const KnownGpu& known : kGpus) {
    CAPTURE(known.name);
    const Absent absent(known);
    for (const Size& s : kSizes) {
      for (const AttentionPass pass : kPasses) {
        const AttentionGraphKey key =
            key_of(pass, s.batch, s.seq, s.q_heads, s.kv_heads, s.head_dim);
        CAPTURE(to_text(key));
        const OperationGraph graph(attention_graph(key), nullptr);
        const std::vector<EngineConfig> configs = attention_configs(graph, pass, absent.gpu);
        REQUIRE(!configs.empty());
        const std::int64_t planned =
            memory::fused_attention_plan_bytes(size_of(key), known.compute_capability);
        CHECK(configs.front().workspace_bytes <= planned);
        // The bound is not much more than enough, where it matters.
        if (s.seq >= 1000)
          CHECK(planned - configs.front().workspace_bytes <= 2 * memory::kWorkspaceAlignment);
      }
    }
  }
}

TEST_CASE("plans of attention compile up to the loading of their kernels") {
  SKIP_WITHOUT_CUDNN();
  for (const KnownGpu* known : {&kA100, &kH100, &kB200}) {
    for (const std::int64_t kv_heads : kKeyHeads) {
      for (const AttentionPass pass : kPasses)
        check_plan(*known, key_of(pass, 2, 2048, 32, kv_heads, kv_heads == 8 ? 128 : 64));
    }
  }
}

TEST_CASE("all plans of the table compile" * doctest::skip()) {
  SKIP_WITHOUT_CUDNN();
  for (const KnownGpu& known : kGpus) {
    for (const std::int64_t head_dim : kHeadDims) {
      for (const std::int64_t kv_heads : kKeyHeads) {
        for (const AttentionPass pass : kPasses) {
          const AttentionGraphKey key = key_of(pass, 2, 2048, 32, kv_heads, head_dim);
          if (is_taken(known, key)) check_plan(known, key);
        }
      }
    }
  }
}

TEST_CASE("rows with gaps are taken as packed ones are") {
  SKIP_WITHOUT_CUDNN();
  for (const KnownGpu& known : kGpus) {
    const Absent absent(known);
    for (const AttentionPass pass : kPasses) {
      AttentionGraphKey key = key_of(pass, 2, 2048, 32, 8, 128);
      const OperationGraph packed(attention_graph(key), nullptr);
      key.ld_qkv += 8;
      key.ld_out += 64;
      if (pass != AttentionPass::forward) {
        key.ld_dout += 16;
        key.ld_dqkv += 128;
      }
      CAPTURE(to_text(key));
      const OperationGraph apart(attention_graph(key), nullptr);
      const std::vector<EngineConfig> a = attention_configs(packed, pass, absent.gpu);
      const std::vector<EngineConfig> b = attention_configs(apart, pass, absent.gpu);
      REQUIRE(!a.empty());
      REQUIRE(a.size() == b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        CHECK(to_text(a[i]) == to_text(b[i]));
        CHECK(a[i].workspace_bytes == b[i].workspace_bytes);
      }
    }
  }
}

TEST_CASE("an engine without room is refused with what it needs, and so is a graph without any") {
  SKIP_WITHOUT_CUDNN();
  const Absent h100(kH100);
  const AttentionGraphKey backward = key_of(AttentionPass::backward, 2, 2048, 32, 8, 128);
  const OperationGraph graph(attention_graph(backward), nullptr);
  const std::vector<EngineConfig> configs = attention_configs(graph, backward.pass, h100.gpu);
  REQUIRE(!configs.empty());
  CHECK(configs[0].workspace_bytes > 0);
  const Error little = error_of([&] { choose_plan(configs, h100.gpu, 0, to_text(backward)); });
  CHECK(little.code() == ExitCode::unsupported);
  const std::string text = little.what();
  CAPTURE(text);
  for (const EngineConfig& config : configs)
    CHECK(text.find("; " + to_text(config) + ": needs " + std::to_string(config.workspace_bytes) +
                    " bytes of workspace") != std::string::npos);
  CHECK(text.find("backward b2 s2048 h32/8 d128 bf16 on a GPU of compute capability 9.0 with 0 "
                  "bytes") != std::string::npos);

  const Error none = error_of([&] { choose_plan({}, h100.gpu, 1 << 30, "x"); });
  CHECK(none.code() == ExitCode::unsupported);
  CHECK(std::string(none.what()).find("it offers no engine") != std::string::npos);
}

TEST_CASE("Blackwell's deterministic backward pass is first asked of the engine for it") {
  const AttentionGraphKey backward =
      key_of(AttentionPass::backward_deterministic, 2, 2048, 32, 8, 128);
  const OperationGraph graph(attention_graph(backward), nullptr);
  SKIP_WITHOUT_CUDNN();
  const Absent b200(kB200);
  const auto configs = attention_configs(graph, backward.pass, b200.gpu);
  REQUIRE(configs.size() >= 2);
  CHECK(configs[0].engine == 5);
  CHECK(configs[1].engine != 5);
  CHECK(configs[0].workspace_bytes < configs[1].workspace_bytes);
  // Other GPUs do not have this engine, nor does an index that is no engine at all.
  const Absent a100(kA100);
  for (const EngineConfig& config : attention_configs(graph, backward.pass, a100.gpu))
    CHECK(config.engine != 5);
  constexpr Knob kKnobs[] = {{CUDNN_KNOB_TYPE_STAGES, 2}};
  CHECK(!fixed_config(graph, b200.gpu, 1000, kKnobs));
}
