// SPDX-License-Identifier: Apache-2.0
// What submit says of memory: drops, automatic microbatches, tables.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "tests/apps/submit/submit_program.h"

using namespace tessera;
using tessera::test::SubmitProgram;

namespace {

using Arguments = std::vector<std::string>;

Arguments on_gpu(const std::string& gpu, Arguments more) {
  Arguments all{"-c", "mpt-published", "--gpu_types", gpu, "-g", "8", "--seq_lens", "2048"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

nlohmann::json planned(const Arguments& arguments) {
  Arguments all = arguments;
  all.emplace_back("--json");
  const CommandResult result = SubmitProgram().run(all);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return nlohmann::json::parse(result.out);
}

}  // namespace

TEST_CASE("what cannot fit is dropped with the missing GiB") {
  const auto plan = planned(on_gpu("a100_40gb", {"-m", "7b", "--microbatch_sizes", "1", "64"}));
  REQUIRE(plan["points"].size() == 1);
  CHECK(plan["points"][0]["point"]["microbatch_size"] == 1);
  REQUIRE(plan["dropped"].size() == 1);
  CHECK(plan["dropped"][0]["reason"] == "memory");
  const auto detail = plan["dropped"][0]["detail"].get<std::string>();
  double need = 0;
  double has = 0;
  double missing = 0;
  REQUIRE(std::sscanf(detail.c_str(),
                      "it needs %lf GiB, a100_40gb has %lf GiB (39.4 less a reserve of 1.5): "
                      "%lf GiB missing",
                      &need, &has, &missing) == 3);
  CHECK(has == doctest::Approx(39.4 - 1.5));
  CHECK(missing == doctest::Approx(need - has).epsilon(0.01));
  // With what is left out of memory, it fits.
  const auto full = planned(on_gpu(
      "a100_40gb", {"-m", "7b", "--microbatch_sizes", "8", "--activation_checkpointing", "full"}));
  CHECK(full["points"].size() == 1);
}

TEST_CASE("an automatic microbatch is the largest that fits, whatever halves or not") {
  const Arguments auto_sized = on_gpu("h100_80gb", {"-m", "7b", "--batch_sizes", "800"});
  const auto plan = planned(auto_sized);
  REQUIRE(plan["points"].size() == 1);
  CHECK(plan["points"][0]["point"]["microbatch_size"] == "auto");
  const auto size = plan["points"][0]["microbatch"].get<int>();
  CHECK(size >= 6);  // as published without checkpointing
  CHECK(size < 100);
  const auto fits = [&](int microbatch) {
    return planned(on_gpu("h100_80gb", {"-m", "7b", "--batch_sizes", "800", "--microbatch_size",
                                        fmt::format("{}", microbatch)}))["points"]
               .size() == 1;
  };
  CHECK(fits(size));
  const CommandResult more =
      SubmitProgram().run(on_gpu("h100_80gb", {"-m", "7b", "--batch_sizes", "800",
                                               "--microbatch_size", fmt::format("{}", size + 1)}));
  CHECK(more.exit_code == static_cast<int>(ExitCode::empty));
  CHECK(SubmitProgram().run(auto_sized).out.find(fmt::format("auto {}", size)) !=
        std::string::npos);

  const CommandResult none =
      SubmitProgram().run(on_gpu("a100_40gb", {"-m", "70b", "--batch_sizes", "8"}));
  CHECK(none.exit_code == static_cast<int>(ExitCode::empty));
  CHECK(none.out.find("even one sequence needs ") != std::string::npos);
}

TEST_CASE("activations in host memory take less of the device's") {
  const auto size = [&](const Arguments& more) {
    Arguments all{"-m", "7b", "--batch_sizes", "800"};
    all.insert(all.end(), more.begin(), more.end());
    return planned(on_gpu("h100_80gb", all))["points"][0]["microbatch"].get<int>();
  };
  const int here = size({});
  CHECK(size({"--activation_cpu_offload"}) > 2 * here);
  CHECK(size({"--set", "activation_checkpointing=full"}) > 2 * here);
  const int first_half =
      size({"--set", "activation_checkpointing=full", "checkpointing_blocks=first-16"});
  CHECK(first_half > here);
  CHECK(first_half < size({"--set", "activation_checkpointing=full"}));
  CHECK(size({"--set", "activation_checkpointing=selective"}) > here);
}

TEST_CASE("--memory says where the memory of a point goes") {
  const CommandResult result =
      SubmitProgram().run(on_gpu("h100_80gb", {"-m", "7b", "--microbatch_size", "6", "--memory"}));
  CHECK(result.exit_code == 0);
  double sum = 0;
  double all = 0;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t gib = line.find(" GiB");
    if (!line.starts_with("  ") || gib == std::string::npos) continue;
    const double value = std::stod(line.substr(22, gib - 22));
    if (line.starts_with("  in all")) {
      all = value;
    } else if (all == 0) {
      sum += value;
    }
  }
  CHECK(all > 30);
  CHECK(sum == doctest::Approx(all).epsilon(0.001));
  for (const char* text : {"weights", "gradients", "moments", "gathered units", "kept activations",
                           "workspaces", "(79.1 less a reserve of 2.0)", "fullest in the "})
    CHECK(result.out.find(text) != std::string::npos);

  // With what has no table, and with the blocks that tell two tables apart.
  const CommandResult dropped = SubmitProgram().run(
      on_gpu("h100_80gb", {"-m", "7b", "70b", "--microbatch_size", "1", "--memory"}));
  CHECK(dropped.out.find("1 dropped: 1 memory") != std::string::npos);
  CHECK(dropped.out.find("GiB missing") != std::string::npos);
  const CommandResult blocks = SubmitProgram().run(
      on_gpu("h100_80gb", {"-m", "7b", "--microbatch_size", "1", "--activation_checkpointing",
                           "full", "--axis", "checkpointing_blocks=all,first-8", "--memory"}));
  CHECK(blocks.out.find("checkpointing full: ") != std::string::npos);
  CHECK(blocks.out.find("checkpointing full first-8: ") != std::string::npos);

  CHECK(SubmitProgram().fault({"-m", "cpu-2m", "--memory", "--RUN"}, ExitCode::usage) ==
        "--memory: prints tables of a plan; leave out --RUN");
}

TEST_CASE("words for blocks are checked where they stand") {
  SubmitProgram submit;
  CHECK(submit.fault({"-m", "cpu-2m", "--set", "checkpointing_blocks=first"}, ExitCode::usage)
            .find("'first' names no blocks; all, first-N, last-N or every-N") != std::string::npos);
  // Those that mean all blocks are one point.
  const auto ids = [&](const char* blocks) {
    return planned({"-m", "cpu-2m", "--batch_sizes", "8", "--microbatch_size", "8", "--set",
                    "activation_checkpointing=full", blocks})["points"][0]["id"]
        .get<std::string>();
  };
  CHECK(ids("checkpointing_blocks=all") == ids("checkpointing_blocks=first-100"));
  CHECK(ids("checkpointing_blocks=all") == ids("checkpointing_blocks=every-1"));
  CHECK(ids("checkpointing_blocks=all") != ids("checkpointing_blocks=first-1"));
}

TEST_CASE("batches of any size are planned without running out of memory") {
  for (const char* batch : {"2^31", "2^40"}) {
    const CommandResult result = SubmitProgram().run(
        {"-m", "cpu-2m", "--seq_lens", "64", "-t", "fp32", "--batch_sizes", batch});
    CAPTURE(result.err);
    CHECK((result.exit_code == 0 || result.exit_code == static_cast<int>(ExitCode::empty)));
    CHECK(result.err.find("internal") == std::string::npos);
  }
  // What the trainer would refuse is said before.
  const CommandResult many =
      SubmitProgram().run({"-m", "cpu-2m", "--seq_lens", "64", "-t", "fp32", "--batch_sizes",
                           "65536", "--microbatch_size", "1"});
  CHECK(many.err.find("65536 microbatches a step, the trainer has at most 32766") !=
        std::string::npos);
  CHECK(SubmitProgram().fault({"-m", "cpu-2m", "--batch_sizes", "8", "--activation_cpu_offload",
                               "--set", "activation_cpu_offload=false"},
                              ExitCode::usage) ==
        "--activation_cpu_offload: 'activation_cpu_offload' is given twice");
}
