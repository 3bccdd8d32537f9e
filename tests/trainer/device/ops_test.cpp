// SPDX-License-Identifier: Apache-2.0
// Names, costs and accesses of operations.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

Tensor at(std::uintptr_t address, std::int64_t rows, std::int64_t cols, DType dtype,
          std::int64_t ld = 0) {
  return {reinterpret_cast<void*>(address), dtype, rows, cols, ld == 0 ? cols : ld};
}

std::int64_t total(const std::vector<std::span<const std::byte>>& ranges) {
  std::int64_t bytes = 0;
  for (const auto& range : ranges) bytes += static_cast<std::int64_t>(range.size());
  return bytes;
}

}  // namespace

TEST_CASE("every operation has its own name") {
  std::set<std::string> names;
  for (const Op& op : std::vector<Op>{
           Gemm{}, BiasGrad{}, Rope{}, AttentionForward{}, AttentionBackward{}, NormForward{},
           NormBackward{}, ActForward{}, ActBackward{}, Embed{}, EmbedBackward{}, CrossEntropy{},
           SumLoss{}, Cast{}, SquaredNorm{}, FinishNorm{}, AdamW{}, Init{}}) {
    names.insert(op_name(op));
  }
  CHECK(names.size() == std::variant_size_v<Op>);
  CHECK(std::string(op_name(AttentionBackward{})) == "attention_backward");
}

TEST_CASE("FLOPs and bytes of a GEMM and of attention") {
  const Tensor a = at(4096, 16, 8, DType::bf16);
  const Tensor b = at(8192, 4, 8, DType::bf16);
  const Tensor d = at(16384, 16, 4, DType::f32);
  CHECK(cost(Gemm{a, b, d}).matmul_flops == 2 * 16 * 8 * 4);
  CHECK(cost(Gemm{a, b, d}).bytes == 2 * (16 * 8 + 4 * 8) + 4 * 16 * 4);
  CHECK(cost(Gemm{a, b, d, false, true, true}).bytes == 2 * (16 * 8 + 4 * 8) + 8 * 16 * 4);
  // An epilogue's argument is written in the forward pass and read in the backward pass.
  const Tensor low = at(16384, 16, 4, DType::bf16);
  Gemm fused{a, b, low};
  fused.pre = at(32768, 16, 4, DType::bf16, 8);
  for (const GemmEpilogue epilogue : {GemmEpilogue::gelu, GemmEpilogue::dgelu}) {
    fused.epilogue = epilogue;
    CHECK(cost(fused).matmul_flops == 2 * 16 * 8 * 4);
    CHECK(cost(fused).bytes == 2 * (16 * 8 + 4 * 8) + 2 * 2 * 16 * 4);
    const bool writes = epilogue == GemmEpilogue::gelu;
    CHECK(total(access(fused).writes) == 2 * 16 * 4 * (writes ? 2 : 1));
    CHECK(total(access(fused).reads) == 2 * (16 * 8 + 4 * 8) + 2 * 16 * 4 * (writes ? 0 : 1));
  }
  const Tensor at_t = at(4096, 8, 16, DType::bf16);
  CHECK(cost(Gemm{at_t, b, d, true, true}).matmul_flops == 2 * 16 * 8 * 4);

  // Two products forward and five backward, of 2 S^2 D FLOPs a head each, half of them masked.
  const AttentionShape s{3, 10, 4, 2, 8, 1};
  const double product = 3 * 4 * 10 * 10 * 8;
  CHECK(cost(AttentionForward{s, {}, {}, {}}).matmul_flops == 2 * product);
  CHECK(cost(AttentionBackward{s, {}, {}, {}, {}, {}, {}}).matmul_flops == 5 * product);
  CHECK(cost(ActForward{model::Activation::gelu_erf, a, a}).matmul_flops == 0);
}

TEST_CASE("bytes of a norm between an f32 residual stream and bf16 branches") {
  const Tensor wide = at(4096, 16, 8, DType::f32);
  const Tensor branch = at(8192, 16, 8, DType::bf16);
  const Tensor gain = at(16384, 1, 8, DType::f32);
  const Tensor rstd = at(20480, 1, 16, DType::f32);
  const NormForward forward{
      model::Norm::rmsnorm, 1e-5F, wide, branch, wide, branch, gain, {}, {}, rstd};
  CHECK(cost(forward).bytes == 16 * 8 * (4 + 2 + 4 + 2) + 4 * 8 + 4 * 16);
  CHECK(total(access(forward).writes) == 16 * 8 * (4 + 2) + 4 * 16);
  const Tensor partials = at(24576, 1, 16, DType::f32);
  const NormBackward backward{
      model::Norm::rmsnorm, branch, wide, wide, gain, {}, rstd, wide, gain, {}, partials};
  CHECK(cost(backward).bytes == 16 * 8 * (2 + 4 + 4 + 4) + 2 * 4 * 8 + 4 * 16);
  CHECK(total(access(backward).reads) == 16 * 8 * (2 + 4 + 4) + 4 * 8 + 4 * 16);
}

TEST_CASE("bytes of an embedding's gradient: rows without a token count where zeros are written") {
  const Tensor order = at(4096, 1, 12, DType::i32);
  const Tensor dy = at(8192, 12, 8, DType::bf16);
  const Tensor dpositions = at(12288, 5, 8, DType::f32);
  const auto bytes = [&](std::int64_t vocab, bool accumulate) {
    const Tensor starts = at(16384, 1, vocab + 1, DType::i32);
    const Tensor dtable = at(32768, vocab, 8, DType::f32);
    return cost(EmbedBackward{order, starts, dy, dtable, dpositions, 4, accumulate, accumulate})
               .bytes -
           (4 * 12 + 4 * (vocab + 1) + 12 * 8 * 2);
  };
  CHECK(bytes(100, false) == (100 + 5) * 8 * 4);
  CHECK(bytes(100, true) == (12 + 5) * 8 * 4 * 2);
  CHECK(bytes(10, true) == (10 + 5) * 8 * 4 * 2);
  CHECK(bytes(10, false) == (10 + 5) * 8 * 4);
}

// Expected: MPT's gen_slopes for 4 and for 6 heads.
TEST_CASE("ALiBi's slopes") {
  const double four[] = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256};
  const double six[] = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256, 1.0 / 2, 1.0 / 8};
  for (std::int64_t head = 0; head < 4; ++head) CHECK(alibi_slope(head, 4, 8) == four[head]);
  for (std::int64_t head = 0; head < 6; ++head) CHECK(alibi_slope(head, 6, 8) == six[head]);
}

TEST_CASE("a view's gaps are not accessed") {
  const Tensor src = at(4096, 3, 5, DType::f32, 8);
  const Tensor dst = at(8192, 3, 5, DType::bf16);
  const Access access = trainer::access(Cast{src, dst, true});
  REQUIRE(access.reads.size() == 4);  // three rows, and dst, which is accumulated
  CHECK(access.reads[1].data() - access.reads[0].data() == 32);
  CHECK(access.reads[1].size() == 20);
  REQUIRE(access.writes.size() == 1);
  CHECK(access.writes[0].size() == 30);
}

// For each case: only declared bytes change, and reads and writes together cover at least the bytes
// that cost() counts.
TEST_CASE("operations change only what they declare to write") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto device = cpu_device(2);
      HostMemory memory;
      const Overrides none;
      std::vector<std::span<std::byte>> blocks;
      CheckArena arena(
          *device, dtype,
          [&](std::int64_t bytes) {
            blocks.emplace_back(memory(bytes), static_cast<std::size_t>(bytes));
            return blocks.back().data();
          },
          none);
      const std::vector<Op> ops = c.build(arena);
      std::int64_t workspace = 0;
      for (const Op& op : ops) workspace = std::max(workspace, device->workspace_bytes(op));
      device->prepare(ops, {memory(workspace), static_cast<std::size_t>(workspace)});
      for (const Op& op : ops) {
        CAPTURE(op_name(op));
        std::vector<std::vector<std::byte>> before;
        for (const auto& block : blocks) before.emplace_back(block.begin(), block.end());
        device->run(Stream::compute, op, {});
        const Access declared = trainer::access(op);
        CHECK(total(declared.writes) > 0);
        for (const auto& range : declared.writes) {
          for (std::size_t i = 0; i < blocks.size(); ++i) {
            const auto offset = range.data() - blocks[i].data();
            if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(blocks[i].size())) continue;
            REQUIRE(offset + static_cast<std::ptrdiff_t>(range.size()) <=
                    static_cast<std::ptrdiff_t>(blocks[i].size()));
            std::memcpy(before[i].data() + offset, range.data(), range.size());
          }
        }
        for (std::size_t i = 0; i < blocks.size(); ++i) {
          CHECK(std::equal(blocks[i].begin(), blocks[i].end(), before[i].begin()));
        }
      }
    }
  }
}

// Changing bytes that are not declared as read must not change the result.
TEST_CASE("operations depend only on what they declare to read") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const auto run = [&](bool disturb) {
      const auto device = cpu_device(1);
      HostMemory memory;
      const Overrides none;
      std::vector<std::span<std::byte>> blocks;
      CheckArena arena(
          *device, DType::f32,
          [&](std::int64_t bytes) {
            blocks.emplace_back(memory(bytes), static_cast<std::size_t>(bytes));
            return blocks.back().data();
          },
          none);
      const std::vector<Op> ops = c.build(arena);
      std::int64_t workspace = 0;
      for (const Op& op : ops) workspace = std::max(workspace, device->workspace_bytes(op));
      device->prepare(ops, {memory(workspace), static_cast<std::size_t>(workspace)});
      std::vector<std::byte> results;
      for (const Op& op : ops) {
        const Access declared = trainer::access(op);
        std::vector<std::vector<std::byte>> saved;
        for (const auto& block : blocks) saved.emplace_back(block.begin(), block.end());
        if (disturb) {
          std::vector<std::vector<std::byte>> changed = saved;
          for (auto& block : changed) {
            for (std::byte& byte : block) byte ^= std::byte{0x3C};
          }
          for (const auto& range : declared.reads) {
            for (std::size_t i = 0; i < blocks.size(); ++i) {
              const auto offset = range.data() - blocks[i].data();
              if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(blocks[i].size())) continue;
              std::memcpy(changed[i].data() + offset, range.data(), range.size());
            }
          }
          for (std::size_t i = 0; i < blocks.size(); ++i) {
            std::copy(changed[i].begin(), changed[i].end(), blocks[i].begin());
          }
        }
        device->run(Stream::compute, op, {});
        std::vector<std::byte> written;
        for (const auto& range : declared.writes) {
          written.insert(written.end(), range.begin(), range.end());
        }
        if (disturb) {  // restore what is neither read nor written
          std::size_t position = 0;
          for (std::size_t i = 0; i < blocks.size(); ++i) {
            std::copy(saved[i].begin(), saved[i].end(), blocks[i].begin());
          }
          for (const auto& range : declared.writes) {
            for (const auto& block : blocks) {
              const auto offset = range.data() - block.data();
              if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(block.size())) continue;
              std::memcpy(block.data() + offset, written.data() + position, range.size());
            }
            position += range.size();
          }
        }
      }
      return arena.bytes();
    };
    CHECK(run(false) == run(true));
  }
}
