// SPDX-License-Identifier: Apache-2.0
// GEMM plans on a fake GPU (fake_cublaslt.h): the algorithms they take and keep.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lib/base/file.h"
#include "tests/temporary.h"
#include "tests/trainer/device/cuda/gemm/gemm_bench.h"
#include "trainer/device/cuda/gemm/gemm.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::cuda;
using namespace tessera::trainer::test;

TEST_CASE("deterministic takes the first of the heuristics: no launch, no clock, no file") {
  Bench bench;
  const tessera::test::TemporaryFolder folder;
  bench.gpu.algorithms = {{.id = 1}, {.id = 2, .seconds = 1e-6}};
  bench.options.cache = folder / "gemm.jsonl";
  FakeTrials trials(bench.gpu);
  {
    // The cache file holds another choice, made by a run that timed.
    GemmPlans plans(bench.lt, false);
    bench.prepare(plans, {linear()}, &trials);
    CHECK(plans.choices()[0].algorithm == 2);
    REQUIRE(std::filesystem::exists(bench.options.cache));
  }
  const std::string file = read_file(bench.options.cache);
  bench.options.deterministic = true;
  bench.gpu.launches.clear();
  trials.asked = 0;
  GemmPlans plans(bench.lt, false);
  bench.prepare(plans, {linear()}, &trials);
  REQUIRE(plans.choices().size() == 1);
  CHECK(plans.choices()[0].algorithm == 1);
  CHECK(plans.choices()[0].source == GemmSource::first);
  CHECK(bench.gpu.launches.empty());
  CHECK(trials.asked == 0);
  CHECK(read_file(bench.options.cache) == file);
}

TEST_CASE("only what fits the workspace and adds in f32 and a fixed order is a candidate") {
  Bench bench;
  const auto chosen = [&](const GemmShape& shape) {
    GemmPlans plans(bench.lt, false);
    bench.prepare(plans, {shape});
    CHECK(plans.choices()[0].candidates == 1);
    return plans.choices()[0].algorithm;
  };
  GemmShape wide = linear();
  wide.out = DType::f32;
  bench.gpu.algorithms = {
      {.id = 1, .state = CUBLAS_STATUS_NOT_SUPPORTED},
      {.id = 2, .workspace_bytes = kWorkspaceBytes + 1},
      {.id = 3, .reduction = CUBLASLT_REDUCTION_SCHEME_INPLACE, .split_k = 4},
      {.id = 4, .reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, .split_k = 4}};
  CHECK(chosen(linear()) == 4);
  CHECK(chosen(wide) == 4);
  // Split-k parts kept in the output's dtype are rounded twice, but not if that is f32.
  bench.gpu.algorithms[3].reduction = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  CHECK(chosen(wide) == 4);
  bench.gpu.algorithms.push_back({.id = 5});
  CHECK(chosen(linear()) == 5);
  // Without split-k nothing is added up.
  bench.gpu.algorithms = {{.id = 6, .reduction = CUBLASLT_REDUCTION_SCHEME_INPLACE, .split_k = 1}};
  CHECK(chosen(linear()) == 6);

  bench.gpu.algorithms = {{.id = 2, .workspace_bytes = kWorkspaceBytes + 1}};
  std::string text;
  CHECK(code_of([&] { chosen(linear()); }, &text) == ExitCode::unsupported);
  CHECK(text == fmt::format("gemm m24 n16 k8 nt bf16>bf16 a256: cuBLASLt {} has no algorithm for "
                            "it with a workspace of 1 MiB",
                            bench.lt.version));
}

TEST_CASE("where an algorithm is refused at its launch, the next takes its place before step one") {
  Bench bench;
  bench.options.deterministic = true;
  bench.gpu.algorithms = {{.id = 1, .launch = CUBLAS_STATUS_NOT_SUPPORTED},
                          {.id = 2, .launch = CUBLAS_STATUS_INVALID_VALUE},
                          {.id = 3},
                          {.id = 4}};
  bench.gpu.computes = false;
  GemmPlans plans(bench.lt, false);
  std::vector<std::byte> operands(4096);
  Gemm op;
  op.a = {operands.data(), DType::bf16, 24, 8, 8};
  op.b = {operands.data() + 1024, DType::bf16, 16, 8, 8};
  op.d = {operands.data() + 2048, DType::bf16, 24, 16, 16};
  op.transpose_b = true;
  bench.prepare(plans, {shape_of(op, false)});
  const std::string before = plans.hash();
  plans.launch_first(op, nullptr);
  CHECK(plans.choices()[0].algorithm == 3);
  CHECK(plans.choices()[0].source == GemmSource::next);
  CHECK(plans.choices()[0].index == 2);
  CHECK(plans.choices()[0].candidates == 4);
  CHECK(plans.hash() != before);
  REQUIRE(plans.notes().size() == 1);
  CHECK(plans.notes()[0].find("cuBLASLt does not launch the algorithm chosen") !=
        std::string::npos);
  bench.gpu.launches.clear();
  plans.run(op, nullptr);
  REQUIRE(bench.gpu.launches.size() == 1);
  CHECK(bench.gpu.launches[0].algorithm == 3);

  // No algorithm launches; an error that is no refusal stops at once.
  for (FakeAlgorithm& each : bench.gpu.algorithms) each.launch = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK(code_of([&] { plans.launch_first(op, nullptr); }) == ExitCode::unsupported);
  bench.gpu.algorithms[2].launch = CUBLAS_STATUS_EXECUTION_FAILED;
  bench.gpu.algorithms[3].launch = CUBLAS_STATUS_SUCCESS;
  CHECK(code_of([&] { plans.launch_first(op, nullptr); }) == ExitCode::failed);
}

TEST_CASE("an operand that lies in the workspace of GEMMs is never launched") {
  Bench bench;
  GemmPlans plans(bench.lt, false);
  bench.prepare(plans, {linear()});
  std::vector<std::byte> elsewhere(4096);
  std::byte* const out = elsewhere.data();
  for (std::byte* const inside :
       {bench.workspace.bytes().data(), &bench.workspace.bytes().back()}) {
    for (const GemmOperands& operands : {GemmOperands{.a = inside, .b = out, .d = out},
                                         GemmOperands{.a = out, .b = inside, .d = out},
                                         GemmOperands{.a = out, .b = out, .d = inside}}) {
      std::string text;
      CHECK(code_of([&] { plans.run(linear(), operands, nullptr); }, &text) == ExitCode::internal);
      CHECK(text.ends_with("an operand lies in the workspace"));
    }
  }
  CHECK(bench.gpu.launches.empty());
}

TEST_CASE("a measurement leaves the first heuristic for one that is clearly faster") {
  Bench bench;
  bench.gpu.algorithms = {{.id = 1, .seconds = 1.0e-3},
                          {.id = 2, .seconds = 0.99e-3},
                          {.id = 3, .seconds = 0.9e-3},
                          {.id = 4, .seconds = 0.1e-3, .launch = CUBLAS_STATUS_NOT_SUPPORTED}};
  FakeTrials trials(bench.gpu);
  GemmPlans plans(bench.lt, false);
  GemmShape f32 = linear();
  f32.in = f32.out = DType::f32;
  GemmShape wide = linear();
  wide.out = DType::f32;
  bench.prepare(plans, {linear(), f32, linear(), wide}, &trials);
  REQUIRE(plans.choices().size() == 3);
  const GemmChoice& choice = plans.choices()[0];
  CHECK(choice.algorithm == 3);
  CHECK(choice.source == GemmSource::timed);
  CHECK(choice.index == 2);
  CHECK(choice.candidates == 4);
  CHECK(choice.us == doctest::Approx(900));
  CHECK(choice.first_us == doctest::Approx(1000));
  CHECK(to_text(choice) ==
        "m24 n16 k8 nt bf16>bf16 a256: timed, algorithm 3 tile 1003 stages 2003 split 1, 900.0 us, "
        "number 3 of 4 (the first: 1000.0 us)");
  CHECK(trials.filled == std::vector{DType::bf16, DType::f32, DType::bf16});
  CHECK(trials.is_within);
  // The operands take four times the cache, in turn.
  CHECK(static_cast<std::int64_t>(trials.results.size()) * gemm_set_bytes(f32) >= 4 << 16);
  CHECK(trials.given_back == 1);
  CHECK(bench.gpu.clock <= 3 * bench.options.seconds + 1e-9);

  bench.gpu.algorithms[2].seconds = 0.985e-3;
  bench.gpu.algorithms[3].seconds = 0.985e-3;
  GemmPlans others(bench.lt, false);
  bench.prepare(others, {linear()}, &trials);
  CHECK(others.choices()[0].algorithm == 1);
  CHECK(to_text(others.choices()[0]) ==
        "m24 n16 k8 nt bf16>bf16 a256: timed, algorithm 1 tile 1001 stages 2001 split 1, 1000.0 "
        "us, number 1 of 4");
}

TEST_CASE("without trials, time or a second candidate nothing is timed") {
  Bench bench;
  bench.gpu.algorithms = {{.id = 1}, {.id = 2, .seconds = 1e-6}};
  FakeTrials trials(bench.gpu);
  const auto first = [&](GemmTrials* with) {
    GemmPlans plans(bench.lt, false);
    bench.prepare(plans, {linear()}, with);
    CHECK(plans.choices()[0].source == GemmSource::first);
    CHECK(plans.notes().empty());
    CHECK(bench.gpu.launches.empty());
    return plans.choices()[0].algorithm;
  };
  CHECK(first(nullptr) == 1);
  bench.options.seconds = 0;
  CHECK(first(&trials) == 1);
  bench.options.seconds = 0.3;
  bench.gpu.algorithms.pop_back();
  CHECK(first(&trials) == 1);
  CHECK(trials.given_back == 0);
}

TEST_CASE("shapes whose operands find no memory keep the first, and a note says so") {
  Bench bench;
  bench.gpu.computes = false;
  bench.gpu.algorithms = {{.id = 1}, {.id = 2, .seconds = 1e-6}};
  GemmShape large = linear();
  large.m = 1 << 20;
  FakeTrials trials(bench.gpu, 1 << 20);
  GemmPlans plans(bench.lt, false);
  bench.prepare(plans, {large, linear()}, &trials);
  CHECK(plans.choices()[0].algorithm == 1);
  CHECK(plans.choices()[0].source == GemmSource::first);
  CHECK(plans.choices()[1].algorithm == 2);
  CHECK(plans.choices()[1].source == GemmSource::timed);
  REQUIRE(plans.notes().size() == 1);
  CHECK(plans.notes()[0] ==
        "gemm: 1 of 2 shapes have the first algorithm untimed: trials need up to 48 MiB of GPU "
        "memory, 1 MiB can be had");
  CHECK(trials.given_back == 1);
}

TEST_CASE("a shape of which no candidate runs ends the preparation with the cause") {
  Bench bench;
  bench.gpu.algorithms = {{.id = 1, .launch = CUBLAS_STATUS_NOT_SUPPORTED},
                          {.id = 2, .launch = CUBLAS_STATUS_ARCH_MISMATCH}};
  FakeTrials trials(bench.gpu);
  GemmPlans plans(bench.lt, false);
  std::string text;
  CHECK(code_of([&] { bench.prepare(plans, {linear()}, &trials); }, &text) ==
        ExitCode::unsupported);
  CHECK(text.starts_with("gemm m24 n16 k8 nt bf16>bf16 a256: cublasLtMatmul: "));
  CHECK(trials.given_back == 1);
}

TEST_CASE("a choice is kept: the next run launches nothing, searches nothing and has its bits") {
  Bench bench;
  const tessera::test::TemporaryFolder folder;
  bench.options.cache = folder / "gemm.jsonl";
  bench.gpu.algorithms = {{.id = 1}, {.id = 2, .seconds = 0.5e-3}};
  FakeTrials trials(bench.gpu);
  std::string hash;
  {
    GemmPlans plans(bench.lt, false);
    bench.prepare(plans, {linear()}, &trials);
    hash = plans.hash();
    CHECK(plans.choices()[0].source == GemmSource::timed);
  }
  CHECK(bench.gpu.handles == 0);
  // If it were timed again, the other one would win.
  bench.gpu.algorithms[1].seconds = 2e-3;
  bench.gpu.launches.clear();
  bench.gpu.searches = 0;
  GemmPlans plans(bench.lt, false);
  bench.prepare(plans, {linear()}, &trials);
  const GemmChoice& choice = plans.choices()[0];
  CHECK(choice.algorithm == 2);
  CHECK(choice.source == GemmSource::cached);
  CHECK(choice.us == doctest::Approx(500));
  CHECK(
      to_text(choice) ==
      "m24 n16 k8 nt bf16>bf16 a256: cached, algorithm 2 tile 1002 stages 2002 split 1, 500.0 us");
  CHECK(plans.hash() == hash);
  CHECK(bench.gpu.launches.empty());
  CHECK(bench.gpu.searches == 0);

  bench.options.gpu.gpu = "Made-up GPU, 5 SMs";
  GemmPlans others(bench.lt, false);
  bench.prepare(others, {linear()}, &trials);
  CHECK(others.choices()[0].algorithm == 1);
  CHECK(others.choices()[0].source == GemmSource::timed);
  CHECK(others.hash() != hash);
}

TEST_CASE("a kept choice that does not run here any more is replaced, with a note") {
  Bench bench;
  const tessera::test::TemporaryFolder folder;
  bench.options.cache = folder / "gemm.jsonl";
  const std::vector<FakeAlgorithm> usual{{.id = 1}, {.id = 2, .seconds = 0.5e-3}};
  FakeTrials trials(bench.gpu);
  const auto prepared = [&] {
    GemmPlans plans(bench.lt, false);
    bench.prepare(plans, {linear()}, &trials);
    return plans;
  };
  for (const FakeAlgorithm& changed :
       {FakeAlgorithm{
            .id = 2, .launch = CUBLAS_STATUS_NOT_SUPPORTED, .check = CUBLAS_STATUS_NOT_SUPPORTED},
        FakeAlgorithm{.id = 2, .workspace_bytes = kWorkspaceBytes + 1},
        FakeAlgorithm{.id = 2, .reduction = CUBLASLT_REDUCTION_SCHEME_INPLACE, .split_k = 2}}) {
    std::filesystem::remove(bench.options.cache);
    bench.gpu.algorithms = usual;
    CHECK(prepared().choices()[0].algorithm == 2);
    bench.gpu.algorithms = {usual[0], changed, {.id = 3, .seconds = 0.9e-3}};
    const GemmPlans plans = prepared();
    CHECK(plans.choices()[0].algorithm == 3);
    CHECK(plans.choices()[0].source == GemmSource::timed);
    REQUIRE(plans.notes().size() == 1);
    CHECK(plans.notes()[0] ==
          "gemm m24 n16 k8 nt bf16>bf16 a256: the algorithm of an earlier run does not run here");
    const GemmPlans next = prepared();
    CHECK(next.choices()[0].algorithm == 3);
    CHECK(next.choices()[0].source == GemmSource::cached);
    CHECK(next.notes().empty());
  }
}

TEST_CASE("of two processes that choose at once, both run what the first one wrote") {
  Bench bench;
  const tessera::test::TemporaryFolder folder;
  bench.options.cache = folder / "gemm.jsonl";
  bench.gpu.algorithms = {{.id = 1}, {.id = 2, .seconds = 0.5e-3}, {.id = 3, .seconds = 0.6e-3}};
  FakeTrials trials(bench.gpu);
  trials.when_taken = [&] {
    GemmCache other(bench.options.cache, {.gpu = bench.options.gpu.gpu,
                                          .cublaslt = bench.lt.version,
                                          .driver = bench.options.gpu.driver,
                                          .workspace_bytes = kWorkspaceBytes});
    other.add({{to_text(linear()), {.algorithm = fake_algorithm(3), .us = 490}}});
  };
  GemmPlans plans(bench.lt, false);
  bench.prepare(plans, {linear()}, &trials);
  CHECK(plans.choices()[0].algorithm == 3);
  CHECK(plans.choices()[0].source == GemmSource::cached);
  bench.gpu.launches.clear();
  bench.gpu.computes = false;
  plans.run(linear(), {}, nullptr);
  CHECK(bench.gpu.launches.at(0).algorithm == 3);
}

TEST_CASE("the hash of the algorithms in use does not depend on the order of preparation") {
  Bench bench;
  GemmShape other = linear();
  other.m = 32;
  GemmPlans one(bench.lt, false);
  bench.prepare(one, {linear(), other});
  GemmPlans two(bench.lt, false);
  bench.prepare(two, {other});
  CHECK(one.hash() != two.hash());
  bench.prepare(two, {linear(), other});
  CHECK(one.hash() == two.hash());
  CHECK(two.choices().size() == 2);
}
