// SPDX-License-Identifier: Apache-2.0
// The calls to cuDNN for attention, and which of its engines runs. A fake cuDNN that records its
// calls replaces the library.
#include "trainer/device/cuda/attention/attention_plans.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "tests/trainer/device/cuda/attention/fake_cudnn.h"
#include "trainer/device/cuda/libraries/cudnn_library.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using cuda::AttentionPass;
using cuda::AttentionPlans;
namespace id = cuda::attention_id;

namespace {

constexpr AttentionShape kShape{2, 16, 4, 2, 8, 0.25F};
constexpr std::int64_t kSums = std::int64_t{2} * 4 * 16 * 8 * 4;  // f32 of all query heads

// Memory that nothing reads or writes.
class Memory {
 public:
  Memory() {
    fake_cudnn() = {};
    fake_cudnn().offered = {{.index = 6, .config_bytes = 1000, .plan_bytes = 1000}};
  }
  Tensor tensor(DType dtype, std::int64_t rows, std::int64_t cols) {
    const std::int64_t bytes = rows * cols * bytes_of(dtype);
    const Tensor t{storage_ + used_, dtype, rows, cols, cols};
    used_ += (bytes + 255) / 256 * 256;
    REQUIRE(used_ <= std::ssize(storage_));
    return t;
  }
  std::span<std::byte> workspace(std::int64_t bytes) {
    return {static_cast<std::byte*>(tensor(DType::f32, 1, bytes / 4).data),
            static_cast<std::size_t>(bytes)};
  }
  Tensor qkv() { return tensor(DType::bf16, 32, 64); }
  Tensor out() { return tensor(DType::bf16, 32, 32); }
  Tensor statistic() { return tensor(DType::f32, 8, 16); }
  AttentionForward forward() { return {kShape, qkv(), out(), statistic()}; }
  AttentionBackward backward() {
    return {kShape, qkv(), out(), statistic(), out(), qkv(), statistic()};
  }

 private:
  alignas(256) std::byte storage_[1 << 17] = {};
  std::int64_t used_ = 0;
};

std::byte* at(const Tensor& t, std::int64_t elements) {
  return static_cast<std::byte*>(t.data) + elements * bytes_of(t.dtype);
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

bool says(const Error& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("cuDNN is told each operation of a graph with its tensors, and nothing else") {
  for (const AttentionPass pass :
       {AttentionPass::forward, AttentionPass::backward, AttentionPass::backward_deterministic}) {
    for (const std::int64_t kv_heads : {4, 2}) {
      const Memory memory;
      cuda::AttentionGraphKey key{pass, 2, 16, 4, kv_heads, 8};
      key.ld_qkv = 72;
      key.ld_out = key.ld_dout = 40;
      key.ld_dqkv = 80;
      const cuda::TensorGraph graph = cuda::attention_graph(key);
      const cuda::OperationGraph built(graph, nullptr);
      REQUIRE(fake_cudnn().graphs.size() == 1);
      const std::vector<ToldOperation>& told = fake_cudnn().graphs[0];
      REQUIRE(told.size() == graph.ops.size());
      for (std::size_t i = 0; i < told.size(); ++i) {
        CAPTURE(i);
        const cuda::GraphOp& op = graph.ops[i];
        ToldOperation meant{op.step, CUDNN_DATA_FLOAT, op.axis, {}, graph.tensors[op.out]};
        if (op.step == cuda::Step::index) meant.computes_in = CUDNN_DATA_INT32;
        if (op.step == cuda::Step::greater_equal) meant.computes_in = CUDNN_DATA_BOOLEAN;
        for (const std::size_t in : op.in) meant.in.push_back(graph.tensors[in]);
        CHECK(told[i] == meant);
      }
    }
  }
  CHECK(fake_cudnn().descriptors == 0);
}

TEST_CASE("a forward pass runs on its own tensors, with the scale of its shape") {
  Memory memory;
  AttentionPlans plans(90, false);
  const AttentionForward op = memory.forward();
  CHECK(!plans.refusal(op));
  CHECK(plans.workspace_bytes(op) == 1024);
  const auto workspace = memory.workspace(1024);
  plans.prepare(op, workspace);
  CHECK(fake_cudnn().executions.empty());
  plans.run(op, nullptr);
  REQUIRE(fake_cudnn().executions.size() == 1);
  const FakeCudnn::Execution& run = fake_cudnn().executions[0];
  CHECK(run.engine == 6);
  CHECK(run.workspace == workspace.data());
  CHECK(run.addresses.size() == 7);
  CHECK(run.addresses.at(id::q) == op.qkv.data);
  CHECK(run.addresses.at(id::k) == at(op.qkv, 4 * 8));
  CHECK(run.addresses.at(id::v) == at(op.qkv, (4 + 2) * 8));
  CHECK(run.addresses.at(id::out) == op.out.data);
  CHECK(run.addresses.at(id::lse) == op.lse.data);
  CHECK(run.numbers.at(id::scale) == 0.25F);
  CHECK(run.numbers.at(id::masked) == -std::numeric_limits<float>::infinity());
}

TEST_CASE("a backward pass has the sums of the query gradient before cuDNN's own workspace") {
  Memory memory;
  AttentionPlans plans(90, false);
  const AttentionBackward op = memory.backward();
  CHECK(plans.workspace_bytes(op) == kSums + 1024);
  const auto workspace = memory.workspace(kSums + 1024);
  plans.prepare(op, workspace);
  plans.run(op, nullptr);
  REQUIRE(fake_cudnn().executions.size() == 1);
  const FakeCudnn::Execution& run = fake_cudnn().executions[0];
  CHECK(run.addresses.size() == 14);
  CHECK(run.addresses.at(id::q) == op.qkv.data);
  CHECK(run.addresses.at(id::dq) == op.dqkv.data);
  CHECK(run.addresses.at(id::dk) == at(op.dqkv, 4 * 8));
  CHECK(run.addresses.at(id::dv) == at(op.dqkv, (4 + 2) * 8));
  CHECK(run.addresses.at(id::dout) == op.dout.data);
  CHECK(run.addresses.at(id::row_sum) == op.row_sum.data);
  CHECK(run.addresses.at(id::dq_sums) == workspace.data());
  CHECK(run.workspace == workspace.data() + kSums);
  CHECK(run.numbers.at(id::one) == 1);

  AttentionPlans deterministic(90, true);
  CHECK(deterministic.workspace_bytes(op) == 1024);
  deterministic.prepare(op, workspace);
  deterministic.run(op, nullptr);
  CHECK(fake_cudnn().executions[1].workspace == workspace.data());
  CHECK(!fake_cudnn().executions[1].addresses.contains(id::dq_sums));
}

TEST_CASE("operations of one key share a plan, which is made once") {
  Memory memory;
  const auto stream = [](std::uintptr_t i) { return reinterpret_cast<cudaStream_t>(i); };
  AttentionPlans plans(90, false);
  const AttentionForward first = memory.forward();
  AttentionForward second = memory.forward();
  second.shape.scale = 0.5F;
  AttentionForward shorter = memory.forward();
  shorter.shape.batch = 1;
  const auto workspace = memory.workspace(1024);
  for (const AttentionForward& op : {first, second, shorter}) plans.prepare(op, workspace);
  CHECK(fake_cudnn().plans_tried == 2);
  CHECK(fake_cudnn().graphs.size() == 2);
  plans.run(second, stream(1));
  plans.run(first, stream(1));
  plans.run(shorter, stream(2));
  REQUIRE(fake_cudnn().executions.size() == 3);
  CHECK(fake_cudnn().executions[0].addresses.at(id::q) == second.qkv.data);
  CHECK(fake_cudnn().executions[0].numbers.at(id::scale) == 0.5F);
  CHECK(fake_cudnn().executions[1].addresses.at(id::q) == first.qkv.data);
  CHECK(fake_cudnn().executions[1].numbers.at(id::scale) == 0.25F);
  CHECK(fake_cudnn().executions[2].stream == stream(2));
  CHECK(fake_cudnn().streams_set == 2);
  const std::vector<cuda::AttentionChoice> choices = plans.choices();
  REQUIRE(choices.size() == 2);
  CHECK(choices[0].graph == "forward b1 s16 h4/2 d8 bf16");
  CHECK(choices[1].engine == "engine 6");
  CHECK(choices[1].plan_bytes == 1000);
  CHECK(choices[1].workspace_bytes == 1024);
}

TEST_CASE("the first engine that has room and becomes a plan is taken") {
  Memory memory;
  fake_cudnn().offered = {
      {.index = 1, .config_bytes = 4096, .plan_bytes = 4096},
      {.index = 2, .plan_status = CUDNN_STATUS_NOT_SUPPORTED_SHAPE},
      {.index = 3, .config_bytes = 8, .plan_bytes = 2048},
      {.index = 4, .knobs = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 26}, {CUDNN_KNOB_TYPE_STAGES, 2}}},
      {.index = 5}};
  AttentionPlans plans(80, false);
  const AttentionForward op = memory.forward();
  CHECK(plans.workspace_bytes(op) == 4096);
  plans.prepare(op, memory.workspace(1024));
  plans.run(op, nullptr);
  CHECK(fake_cudnn().executions[0].engine == 4);
  CHECK(fake_cudnn().plans_tried == 3);
  const cuda::AttentionChoice choice = plans.choices().at(0);
  CHECK(choice.engine == "engine 4, KERNEL_CFG 26, STAGES 2");
  CHECK(choice.rank == 3);
  CHECK(choice.offered == 5);
}

TEST_CASE("where no engine does, each says why; one that fails by itself is another error") {
  Memory memory;
  fake_cudnn().offered = {{.index = 1, .config_bytes = 4096},
                          {.index = 2, .plan_status = CUDNN_STATUS_NOT_SUPPORTED},
                          {.index = 3, .plan_bytes = 2048}};
  const AttentionForward op = memory.forward();
  const auto workspace = memory.workspace(1024);
  AttentionPlans plans(89, false);
  const Error refused = error_of([&] { plans.prepare(op, workspace); });
  CHECK(refused.code() == ExitCode::unsupported);
  CHECK(says(refused, "forward b2 s16 h4/2 d8 bf16 on a GPU of compute capability 8.9"));
  CHECK(says(refused, "; engine 1: needs 4096 bytes"));
  CHECK(says(refused, "; engine 2: CUDNN_STATUS_FAKE: first line second"));
  CHECK(says(refused, "; engine 3: needs 2048 bytes"));
  fake_cudnn().offered[1].plan_status = CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED;
  AttentionPlans others(89, false);
  CHECK(error_of([&] { others.prepare(op, workspace); }).code() == ExitCode::failed);
  const Error sums = error_of([&] { others.prepare(memory.backward(), workspace); });
  CHECK(sums.code() == ExitCode::unsupported);
  CHECK(says(sums, "need 4096 bytes of workspace, there are 1024"));
}

TEST_CASE("attention without an engine, or of a shape that is never asked for, is left to others") {
  Memory memory;
  const AttentionForward op = memory.forward();
  AttentionForward wide = op;
  wide.qkv.dtype = DType::f32;
  fake_cudnn().offered.clear();
  AttentionPlans plans(100, false);
  CHECK(plans.refusal(op).value_or("") ==
        "cuDNN 9.19.0 has no engine for forward b2 s16 h4/2 d8 bf16 on a GPU of compute capability "
        "10.0");
  CHECK(plans.refusal(wide).value_or("") == "cuDNN's attention is in bf16, not in f32");
  const Error error = error_of([&] { plans.prepare(op, memory.workspace(1024)); });
  CHECK(error.code() == ExitCode::unsupported);
  CHECK(says(error, "cuDNN 9.19.0 has no engine"));
}

TEST_CASE("Blackwell's deterministic backward pass prefers the engine that is made for it") {
  const cuda::Knob kernel{CUDNN_KNOB_TYPE_KERNEL_CFG, 31};
  const cuda::Knob stages{CUDNN_KNOB_TYPE_STAGES, 2};
  Memory memory;
  const AttentionBackward op = memory.backward();
  const auto workspace = memory.workspace(kSums + 1024);
  const auto engine = [&](int capability, bool deterministic) {
    AttentionPlans plans(capability, deterministic);
    plans.prepare(op, workspace);
    plans.run(op, nullptr);
    return fake_cudnn().executions.back().engine;
  };
  fake_cudnn().fixed = {{.index = 5, .knobs = {kernel, stages}}};
  CHECK(engine(100, true) == 5);
  CHECK(engine(103, true) == 5);
  CHECK(engine(100, false) == 6);
  CHECK(engine(90, true) == 6);
  CHECK(engine(120, true) == 6);
  // This cuDNN numbers its kernels differently.
  fake_cudnn().version = 92300;
  CHECK(engine(100, true) == 6);
  fake_cudnn().fixed = {{.index = 5,
                         .knobs = {{CUDNN_KNOB_TYPE_TILE_M, 3},
                                   {CUDNN_KNOB_TYPE_TILE_N, 2},
                                   {CUDNN_KNOB_TYPE_KERNEL_CFG, 2},
                                   {CUDNN_KNOB_TYPE_STREAM_K, 0},
                                   {CUDNN_KNOB_TYPE_TILE_CGA_M, 0},
                                   stages}}};
  CHECK(engine(100, true) == 5);
}

TEST_CASE("what was not prepared, or does not lie as it must, is refused") {
  Memory memory;
  AttentionPlans plans(90, false);
  const AttentionForward op = memory.forward();
  const auto workspace = memory.workspace(2048);
  CHECK(error_of([&] { plans.run(op, nullptr); }).code() == ExitCode::internal);
  plans.prepare(op, workspace);
  AttentionForward other = op;
  other.out = memory.out();
  CHECK(error_of([&] { plans.run(other, nullptr); }).code() == ExitCode::internal);
  other.lse.data = at(other.lse, 1);
  CHECK(says(error_of([&] { plans.prepare(other, workspace); }), "not aligned to 16 bytes"));
  CHECK(says(error_of([&] { plans.prepare(op, workspace.subspan(128)); }),
             "not aligned to 256 bytes"));
  // The plan was made with a larger workspace than it gets now.
  CHECK(error_of([&] { plans.prepare(op, workspace.first(512)); }).code() == ExitCode::internal);
}

TEST_CASE("plans leave nothing behind, and are not made by a cuDNN that is too old or has no GPU") {
  Memory memory;
  {
    AttentionPlans plans(90, false);
    const AttentionBackward op = memory.backward();
    plans.prepare(op, memory.workspace(kSums + 1024));
    CHECK(fake_cudnn().descriptors > 0);
    CHECK(fake_cudnn().handles == 1);
  }
  CHECK(fake_cudnn().descriptors == 0);
  CHECK(fake_cudnn().handles == 0);
  fake_cudnn().create_status = CUDNN_STATUS_NOT_INITIALIZED;
  CHECK(error_of([] { const AttentionPlans plans(90, false); }).code() == ExitCode::wrong_device);
  for (const cudnnStatus_t status :
       {CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED,
        CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE}) {
    fake_cudnn().create_status = status;
    const Error parts = error_of([] { const AttentionPlans plans(90, false); });
    CHECK(parts.code() == ExitCode::unsupported);
    CHECK(says(parts,
               "/fake/libcudnn.so.9: cuDNN 9.19.0 cannot use its parts: CUDNN_STATUS_FAKE: first "
               "line second; all libcudnn_* of this version in /fake, and"));
  }
  fake_cudnn().version = 91701;
  const Error old = error_of([] { const AttentionPlans plans(90, false); });
  CHECK(old.code() == ExitCode::unsupported);
  CHECK(says(old, "cuDNN 9.17.1 is too old for attention, which needs 9.18.0"));
  CHECK(!cuda::why_too_old(91800));
}
