// SPDX-License-Identifier: Apache-2.0
// What is measured of the table of operations is complete, and is what the operations cost.
#include "trainer/bench/bench_ops.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

const BenchShape kSmall{.d_model = 32,
                        .q_heads = 4,
                        .kv_heads = 2,
                        .head_dim = 8,
                        .ffn = 48,
                        .vocab = 200,
                        .seq = 16,
                        .sequences = 2,
                        .head_rows = 8};
BenchShape with_fused_gelu() {
  BenchShape shape = kSmall;
  shape.fused_gelu = true;
  return shape;
}
const std::vector<Case> kCases = decoder_cases(with_fused_gelu());

// Never read or written.
std::byte* address() {
  static std::byte here{};
  return &here;
}

std::string text_of(std::FILE* file) {
  std::string text(65536, '\0');
  REQUIRE(std::fseek(file, 0, SEEK_SET) == 0);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

}  // namespace

TEST_CASE("every operation has an entry, and what has activations has one in bf16 too") {
  std::map<std::size_t, std::set<DType>> dtypes;
  for (const BenchEntry& entry : bench_entries(kCases)) {
    BenchArena arena(address(), entry.timed.arena);
    dtypes[entry.build(arena).back().index()].insert(entry.timed.dtype);
  }
  for (std::size_t i = 0; i < std::variant_size_v<Op>; ++i) {
    CAPTURE(i);
    CHECK(dtypes[i].contains(DType::f32));
  }
  int without = 0;
  for (const auto& [op, of_op] : dtypes) without += of_op.contains(DType::bf16) ? 0 : 1;
  CHECK(without == 4);  // sum_loss, squared_norm, finish_norm, init
}

TEST_CASE("what is measured is checked: the table has each of the benchmark's cases") {
  std::map<std::string, std::size_t> timed;  // operations and variants, by how many cases
  for (const Case& c : cases()) {
    for (const Case::Timed& each : c.timed) ++timed[each.variant];
  }
  std::map<std::string, std::size_t> measured;
  for (const BenchEntry& entry : bench_entries(kCases)) ++measured[entry.timed.variant];
  CHECK(timed == measured);
  std::set<std::string> names;
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    CHECK(names.insert(c.name).second);
  }
}

TEST_CASE("products that do a GELU are in it where the engine has such") {
  const auto variants = [](const BenchShape& shape) {
    std::multiset<std::string> of_gemm;
    const std::vector<Case> cases = decoder_cases(shape);
    for (const BenchEntry& entry : bench_entries(cases)) {
      BenchArena arena(address(), entry.timed.arena);
      const Op op = entry.build(arena).back();
      const auto* gemm = std::get_if<Gemm>(&op);
      if (gemm == nullptr) continue;
      CHECK((entry.timed.variant == "forward gelu") == (gemm->epilogue == GemmEpilogue::gelu));
      CHECK((entry.timed.variant == "dX dgelu") == (gemm->epilogue == GemmEpilogue::dgelu));
      of_gemm.insert(entry.timed.variant);
    }
    return of_gemm;
  };
  CHECK(variants(kSmall) ==
        std::multiset<std::string>{"forward", "forward", "dX", "dX", "dW", "dW"});
  CHECK(variants(with_fused_gelu()) ==
        std::multiset<std::string>{"forward", "forward", "forward gelu", "forward gelu", "dX", "dX",
                                   "dX dgelu", "dX dgelu", "dW", "dW"});
}

TEST_CASE("each entry is run on finite data of its own, and leaves finite results") {
  const std::unique_ptr<Device> device = cpu_device(1);
  std::int64_t bytes = 0;
  for (const BenchEntry& entry : bench_entries(kCases)) {
    BenchArena arena(address(), entry.timed.arena);
    entry.build(arena);
    bytes = std::max(bytes, arena.used_bytes());
  }
  std::byte* base = device->allocate(Pool::device, bytes);
  std::byte* workspace = device->allocate(Pool::device, 1 << 20);
  for (const BenchEntry& entry : bench_entries(kCases)) {
    CAPTURE(entry.timed.variant);
    std::memset(base, 0xFF, static_cast<std::size_t>(bytes));  // NaN
    BenchArena arena(base, entry.timed.arena);
    const std::vector<Op> ops = entry.build(arena);
    const Op& op = ops.back();
    CAPTURE(std::string(op_name(op)));
    std::vector<Op> all = arena.fills();
    all.insert(all.end(), ops.begin(), ops.end());
    device->prepare(all, {workspace, 1 << 20});
    arena.upload(*device);
    // Rows of it, as in a measurement.
    for (const Op& before : all) device->run(Stream::compute, before, {});
    for (int i = 0; i < 20; ++i) device->run(Stream::compute, op, {});
    const auto* norm = std::get_if<NormBackward>(&op);
    for (const auto& range : access(op).writes) {
      // rmsnorm leaves the half of its scratch that is for dbias.
      if (norm != nullptr && range.data() == norm->partials.data) continue;
      // No element is all ones: -1, NaN. Half of an f32 may be.
      const std::size_t element = entry.timed.dtype == DType::f32 ? 4 : 2;
      bool is_written = true;
      for (std::size_t at = 0; at + element <= range.size(); at += element) {
        const auto bytes_of_it = range.subspan(at, element);
        is_written = is_written && std::ranges::count(bytes_of_it, std::byte{0xFF}) <
                                       static_cast<std::ptrdiff_t>(element);
      }
      CHECK(is_written);
    }
    if (const auto* gemm = std::get_if<Gemm>(&op); gemm != nullptr && gemm->d.dtype == DType::f32) {
      for (std::int64_t i = 0; i < gemm->d.rows * gemm->d.cols; ++i)
        CHECK(std::isfinite(static_cast<const float*>(gemm->d.data)[i]));
    }
  }
}

TEST_CASE("all entries are measured, in order, with what they cost") {
  const std::unique_ptr<Device> device = cpu_device(1);
  const std::vector<BenchEntry> entries = bench_entries(kCases);
  double copy = 0;
  std::vector<BenchResult> results;
  bench_operations(
      *device, entries, 1e-3, [&](double bytes_per_s) { copy = bytes_per_s; },
      [&](const BenchResult& result) { results.push_back(result); });
  CHECK(copy > 1e7);
  CHECK(copy < 1e13);
  REQUIRE(results.size() == entries.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    BenchArena arena(address(), entries[i].timed.arena);
    const Op op = entries[i].build(arena).back();
    CHECK(results[i].op == op_name(op));
    CHECK(results[i].seconds > 0);
    CHECK(results[i].seconds < 1);
    CHECK(results[i].bytes == static_cast<double>(cost(op).bytes));
    CHECK(results[i].matmul_flops == cost(op).matmul_flops);
  }
  // [32, 32] x [48, 32]^T.
  CHECK(results[0].label() == "gemm forward");
  CHECK(results[0].matmul_flops == 2 * 32 * 32 * 48);
}

TEST_CASE("the table has a line for each, JSON the same figures") {
  std::FILE* out = std::tmpfile();
  std::FILE* people = std::tmpfile();
  REQUIRE(out != nullptr);
  REQUIRE(people != nullptr);
  bench({.threads = 1, .shape = kSmall, .json = true, .seconds = 1e-3, .gemm_seconds = 0.01}, out,
        people);
  const std::string table = text_of(people);
  const auto json = nlohmann::json::parse(text_of(out));
  std::fclose(out);
  std::fclose(people);
  CHECK(json.at("threads") == 1);
  CHECK(json.at("copy_gb_per_s") > 0);
  CHECK(json.at("gemm_gflop_per_s") > 0);
  CHECK(json.at("operations").size() == bench_entries(decoder_cases(kSmall)).size());
  for (const auto& operation : json.at("operations")) {
    const std::string variant = operation.value("variant", "");
    const auto name =
        operation.at("op").get<std::string>() + (variant.empty() ? "" : " " + variant);
    CAPTURE(name);
    CHECK(table.find("\n" + name + " ") != std::string::npos);
    CHECK(operation.at("gb_per_s") > 0);
  }
  CHECK(table.find("plain copy: ") != std::string::npos);
  CHECK(table.find("plain GEMM: ") != std::string::npos);
}

TEST_CASE("what the machine cannot hold is refused with both figures") {
  BenchShape huge = kSmall;
  huge.ffn = std::int64_t{1} << 40;
  const std::unique_ptr<Device> device = cpu_device(1);
  const std::vector<Case> cases = decoder_cases(huge);
  const auto nothing = [](const auto&) {};
  try {
    bench_operations(*device, bench_entries(cases), 1e-3, nothing, nothing);
    FAIL("was not refused");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::host_oom);
    CHECK(std::string(error.what()).find("GiB are needed, the device has") != std::string::npos);
  }
}
