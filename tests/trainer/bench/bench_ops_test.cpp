// The catalogue is complete, and what is measured of it is what the operations cost.
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
  for (const BenchEntry& entry : bench_catalogue(with_fused_gelu())) {
    BenchRoom room(address());
    dtypes[entry.build(room).index()].insert(entry.dtype);
  }
  for (std::size_t i = 0; i < std::variant_size_v<Op>; ++i) {
    CAPTURE(i);
    CHECK(dtypes[i].contains(DType::f32));
  }
  int without = 0;
  for (const auto& [op, of_op] : dtypes) without += of_op.contains(DType::bf16) ? 0 : 1;
  CHECK(without == 4);  // sum_loss, squared_norm, finish_norm, init
}

TEST_CASE("products that do a GELU are in it where the engine has such") {
  const auto variants = [](const BenchShape& shape) {
    std::multiset<std::string> of_gemm;
    for (const BenchEntry& entry : bench_catalogue(shape)) {
      BenchRoom room(address());
      const Op op = entry.build(room);
      const auto* gemm = std::get_if<Gemm>(&op);
      if (gemm == nullptr) continue;
      CHECK((entry.variant == "forward gelu") == (gemm->epilogue == GemmEpilogue::gelu));
      CHECK((entry.variant == "dX dgelu") == (gemm->epilogue == GemmEpilogue::dgelu));
      of_gemm.insert(entry.variant);
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
  for (const BenchEntry& entry : bench_catalogue(with_fused_gelu())) {
    BenchRoom room(address());
    entry.build(room);
    bytes = std::max(bytes, room.used());
  }
  std::byte* base = device->allocate(Pool::device, bytes);
  std::byte* workspace = device->allocate(Pool::device, 1 << 20);
  for (const BenchEntry& entry : bench_catalogue(with_fused_gelu())) {
    CAPTURE(entry.variant);
    std::memset(base, 0xFF, static_cast<std::size_t>(bytes));  // NaN
    BenchRoom room(base);
    const Op op = entry.build(room);
    CAPTURE(std::string(op_name(op)));
    std::vector<Op> all = room.first();
    all.push_back(op);
    device->prepare(all, {workspace, 1 << 20});
    room.upload(*device);
    // Rows of it, as in a measurement.
    for (const Op& before : room.first()) device->run(Stream::compute, before, {});
    for (int i = 0; i < 20; ++i) device->run(Stream::compute, op, {});
    const auto* norm = std::get_if<NormBackward>(&op);
    for (const auto& range : access(op).writes) {
      // rmsnorm leaves the half of its scratch that is for dbias.
      if (norm != nullptr && range.data() == norm->partials.data) continue;
      // No element is all ones: -1, NaN. Half of an f32 may be.
      const std::size_t element = entry.dtype == DType::f32 ? 4 : 2;
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
  const auto catalogue = bench_catalogue(with_fused_gelu());
  double copy = 0;
  std::vector<BenchResult> results;
  bench_operations(
      *device, catalogue, 1e-3, [&](double bytes_per_s) { copy = bytes_per_s; },
      [&](const BenchResult& result) { results.push_back(result); });
  CHECK(copy > 1e7);
  CHECK(copy < 1e13);
  REQUIRE(results.size() == catalogue.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    BenchRoom room(address());
    const Op op = catalogue[i].build(room);
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
  CHECK(json.at("operations").size() == bench_catalogue(kSmall).size());
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
  const auto nothing = [](const auto&) {};
  try {
    bench_operations(*device, bench_catalogue(huge), 1e-3, nothing, nothing);
    FAIL("was not refused");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::host_oom);
    CHECK(std::string(error.what()).find("GiB are needed, the device has") != std::string::npos);
  }
}
