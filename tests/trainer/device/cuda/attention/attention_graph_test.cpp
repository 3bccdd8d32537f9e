// SPDX-License-Identifier: Apache-2.0
// The attention graphs that cuDNN gets, evaluated on the CPU as they stand: the same values that
// become cuDNN's descriptors.
#include "trainer/device/cuda/attention/attention_graph.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/trainer/device/cuda/attention/attention_device.h"
#include "tests/trainer/device/cuda/attention/walk_graph.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

namespace id = cuda::attention_id;
using cuda::AttentionGraphKey;
using cuda::AttentionPass;

class WalkedDevice final : public AttentionDevice {
 public:
  WalkedDevice(bool deterministic, Rounding rounding)
      : deterministic_(deterministic), rounding_(rounding) {}

 private:
  void attend(const AttentionForward& op) override {
    cuda::AttentionScalars scalars;
    walk_with(cuda::key_of(op), cuda::bindings(op, scalars), op.qkv.dtype, op.lse.dtype);
  }
  void attend(const AttentionBackward& op) override {
    const AttentionGraphKey key = cuda::key_of(op, deterministic_);
    const std::int64_t elements =
        memory::query_gradient_sums_bytes(cuda::size_of(key)) / bytes_of(DType::f32);
    std::vector<double> sums(static_cast<std::size_t>(elements));
    cuda::AttentionScalars scalars;
    walk_with(key, cuda::bindings(op, deterministic_ ? nullptr : sums.data(), scalars),
              op.qkv.dtype, op.lse.dtype);
  }

  void walk_with(const AttentionGraphKey& key, const std::vector<cuda::Binding>& bindings,
                 DType activations, DType statistics) const {
    walk(
        cuda::attention_graph(key), bindings,
        [&](const cuda::GraphTensor& t) {
          if (t.id == id::dq_sums) return DType::f64;
          return t.element == cuda::Element::bf16 ? activations : statistics;
        },
        rounding_);
  }

  bool deterministic_;
  Rounding rounding_;
};

// Returns the table's attention cases that cuDNN's graph can express.
std::vector<Case> graph_cases() {
  std::vector<Case> chosen;
  for (Case& c : attention_cases()) {
    if (c.name.starts_with("attention") && c.name.find("alibi") == std::string::npos)
      chosen.push_back(std::move(c));
  }
  return chosen;
}

Outcome walked(const Case& c, DType dtype, bool deterministic, Rounding rounding) {
  WalkedDevice device(deterministic, rounding);
  HostMemory memory;
  return run_case(c, dtype, device, [&](std::int64_t bytes) { return memory(bytes); });
}

AttentionGraphKey key(AttentionPass pass = AttentionPass::forward) {
  AttentionGraphKey k{pass, 2, 16, 4, 2, 8};
  k.ld_qkv = 64;
  k.ld_out = 32;
  k.ld_lse = 16;
  if (pass == AttentionPass::forward) return k;
  k.ld_dout = 32;
  k.ld_dqkv = 64;
  k.ld_row_sum = 16;
  return k;
}

}  // namespace

TEST_CASE("attention's graphs compute what the CPU's attention does, to the last digits of f64") {
  REQUIRE(graph_cases().size() >= 5);
  for (const Case& c : graph_cases()) {
    CAPTURE(c.name);
    const Outcome reference = run_case(c, DType::f64);
    for (const bool deterministic : {false, true}) {
      CAPTURE(deterministic);
      const Outcome outcome = walked(c, DType::f64, deterministic, Rounding::none);
      CHECK(outcome.overrun.empty());
      CHECK(outcome.compared == std::vector<std::string>{"out", "lse", "dqkv"});
      for (const std::string& name : outcome.compared) {
        CAPTURE(name);
        CHECK(distance(outcome.values.at(name), reference.values.at(name)) < 1e-13);
      }
    }
  }
}

TEST_CASE("attention's graphs keep to the table's tolerance with all that they round to bf16") {
  for (const Case& c : graph_cases()) {
    CAPTURE(c.name);
    const Outcome reference = run_case(c, DType::f64);
    const Outcome outcome = walked(c, DType::bf16, false, Rounding::as_declared);
    for (const std::string& name : outcome.compared) {
      CAPTURE(name);
      CHECK(distance(outcome.values.at(name), reference.values.at(name)) <= c.bf16_tolerance);
    }
  }
}

TEST_CASE("every tensor of an attention graph that has an address is bound, and nothing else") {
  float memory = 0;
  const Tensor t{&memory, DType::bf16, 32, 64, 64};
  const AttentionShape shape{2, 16, 4, 2, 8, 0.25F};
  cuda::AttentionScalars scalars;
  const auto ids_of = [](const cuda::TensorGraph& graph) {
    std::set<std::int64_t> ids;
    for (const cuda::GraphTensor& tensor : graph.tensors)
      if (tensor.place != cuda::Place::inner) ids.insert(tensor.id);
    return ids;
  };
  const auto bound = [](const std::vector<cuda::Binding>& bindings) {
    std::set<std::int64_t> ids;
    for (const cuda::Binding& b : bindings) CHECK(ids.insert(b.id).second);
    return ids;
  };
  CHECK(bound(cuda::bindings(AttentionForward{shape, t, t, t}, scalars)) ==
        ids_of(cuda::attention_graph(key())));
  CHECK(scalars.scale == 0.25F);
  const AttentionBackward backward{shape, t, t, t, t, t, t};
  CHECK(bound(cuda::bindings(backward, &memory, scalars)) ==
        ids_of(cuda::attention_graph(key(AttentionPass::backward))));
  CHECK(bound(cuda::bindings(backward, nullptr, scalars)) ==
        ids_of(cuda::attention_graph(key(AttentionPass::backward_deterministic))));
}

TEST_CASE("a key has the shape and the leading dimensions, and says both") {
  const AttentionShape shape{2, 16, 4, 2, 8, 0.25F};
  const auto tensor = [](std::int64_t ld) { return Tensor{nullptr, DType::bf16, 32, 32, ld}; };
  const AttentionForward forward{shape, tensor(64), tensor(32), tensor(16)};
  CHECK(cuda::key_of(forward) == key());
  CHECK(to_text(cuda::key_of(forward)) == "forward b2 s16 h4/2 d8 bf16");
  AttentionBackward backward{shape,      tensor(64), tensor(32), tensor(16),
                             tensor(32), tensor(64), tensor(16)};
  CHECK(cuda::key_of(backward, false) == key(AttentionPass::backward));
  CHECK(cuda::key_of(backward, true) == key(AttentionPass::backward_deterministic));
  backward.qkv.ld = 72;
  backward.dout.ld = 40;
  CHECK(to_text(cuda::key_of(backward, true)) ==
        "deterministic backward b2 s16 h4/2 d8 bf16 ld_qkv 72 ld_dout 40");
  CHECK(cuda::key_of(backward, true) != key(AttentionPass::backward_deterministic));
  backward.shape.alibi_bias_max = 8;
  CHECK(cuda::key_of(backward, true).alibi);
}

TEST_CASE("cuDNN is not asked for attention that it does not do, or does wrongly") {
  const auto why = [](AttentionPass pass, auto change) {
    AttentionGraphKey k = key(pass);
    change(k);
    return cuda::why_unsupported(k).value_or("");
  };
  for (const AttentionPass pass :
       {AttentionPass::forward, AttentionPass::backward, AttentionPass::backward_deterministic}) {
    CHECK(why(pass, [](AttentionGraphKey&) {}) == "");
    CHECK(why(pass, [](AttentionGraphKey& k) { k.ld_qkv = 128; }) == "");
    CHECK(why(pass, [](AttentionGraphKey& k) { k.dtype = DType::f32; }) ==
          "cuDNN's attention is in bf16, not in f32");
    CHECK(why(pass, [](AttentionGraphKey& k) { k.alibi = true; }) ==
          "cuDNN's attention is used without ALiBi");
    for (const std::int64_t head_dim : {0, 4, 20, 264})
      CHECK(why(pass, [&](AttentionGraphKey& k) { k.head_dim = head_dim; }) ==
            "cuDNN's attention takes heads of a multiple of 8 up to 256 elements, not of " +
                std::to_string(head_dim));
    CHECK(why(pass, [](AttentionGraphKey& k) { k.seq = k.ld_lse = k.ld_row_sum = 1; }) ==
          "cuDNN's attention takes sequences of 2 tokens and more");
    CHECK(why(pass, [](AttentionGraphKey& k) { k.ld_out = 36; }) ==
          "cuDNN's attention takes rows that begin at multiples of 16 bytes, not each 36 elements");
    CHECK(why(pass, [](AttentionGraphKey& k) { k.ld_lse = 17; }) ==
          "cuDNN's attention takes lse and row_sum without gaps between rows");
  }
  CHECK(why(AttentionPass::backward, [](AttentionGraphKey& k) { k.ld_row_sum = 24; }) ==
        "cuDNN's attention takes lse and row_sum without gaps between rows");
  CHECK(why(AttentionPass::backward, [](AttentionGraphKey& k) { k.ld_dqkv = 65; }) ==
        "cuDNN's attention takes rows that begin at multiples of 16 bytes, not each 65 elements");
}

TEST_CASE("the planned workspace of attention is the one worked out by hand") {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  // 2 sequences of 2048 tokens, 32 heads of 128: 64 MiB as f32, 32 MiB as bf16.
  const auto bytes = [](AttentionPass pass, std::int64_t kv_heads, int compute_capability) {
    const memory::FusedAttention a{pass, 2, 2048, 32, kv_heads, 128};
    return memory::fused_attention_bytes(a, compute_capability) - memory::kWorkspaceAlignment;
  };
  for (const int any : {80, 86, 90, 100, 120}) {
    CAPTURE(any);
    CHECK(bytes(AttentionPass::forward, 8, any) == 0);
  }
  constexpr AttentionPass kBackward = AttentionPass::backward;
  for (const int hopper_or_later : {90, 100, 103}) {
    CHECK(bytes(kBackward, 32, hopper_or_later) == 64 * kMiB);
    CHECK(bytes(kBackward, 8, hopper_or_later) == (64 + 2 * 32) * kMiB);
  }
  for (const int other : {80, 89, 120}) {
    CHECK(bytes(kBackward, 32, other) == (64 + 64) * kMiB);
    CHECK(bytes(kBackward, 8, other) == (64 + 64 + 2 * 32) * kMiB);
  }
  // Scores of 2 x 32 heads, 2048 x 2048, in bf16.
  constexpr AttentionPass kSame = AttentionPass::backward_deterministic;
  for (const int other : {80, 90, 120}) {
    CHECK(bytes(kSame, 32, other) == 512 * kMiB);
    CHECK(bytes(kSame, 8, other) == (512 + 2 * 32) * kMiB);
  }
  CHECK(bytes(kSame, 32, 100) == 0);
  CHECK(bytes(kSame, 8, 100) == 4 * 32 * kMiB);
  // Score rows are whole tiles: 100 x 100 becomes 128 x 128.
  const memory::FusedAttention short_rows{kSame, 1, 100, 8, 8, 64};
  CHECK(memory::fused_attention_plan_bytes(short_rows, 80) == 8 * 128 * 128 * 2 + 256);
  CHECK(memory::query_gradient_sums_bytes({kBackward, 1, 3, 1, 1, 8}) == 256);
}
