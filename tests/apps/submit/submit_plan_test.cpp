// SPDX-License-Identifier: Apache-2.0
// The planning half of submit, as people call it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <tuple>

#include "lib/base/tree.h"
#include "lib/point/identity.h"
#include "tests/apps/submit/submit_program.h"

using namespace tessera;
using test::SubmitProgram;

namespace {

struct Planned {
  std::vector<sweep::Point> points;
  std::vector<std::string> labels;
  std::vector<std::string> drops;
  std::string err;
};

Planned plan(std::vector<std::string> arguments, int expected_code = 0) {
  const SubmitProgram submit;
  arguments.emplace_back("--json");
  const CommandResult result = submit.run(arguments);
  CAPTURE(result.err);
  REQUIRE(result.exit_code == expected_code);
  CHECK(submit.is_untouched());
  Planned planned;
  planned.err = result.err;
  const auto json = nlohmann::json::parse(result.out);
  for (const auto& each : json.at("points")) {
    const auto point = sweep::parse_point(parse_json(each.at("point").dump(), "point"));
    CHECK(sweep::point_id(point) == each.at("id").get<std::string>());
    CHECK_FALSE(each.at("slug").get<std::string>().empty());
    planned.points.push_back(point);
    planned.labels.push_back(each.at("label"));
  }
  for (const auto& drop : json.at("dropped"))
    planned.drops.push_back(drop.at("reason").get<std::string>() + ": " +
                            drop.at("detail").get<std::string>());
  return planned;
}

}  // namespace

TEST_CASE("-m takes other programs' models, by what is in the file") {
  SubmitProgram submit;
  submit.write("config.json",
               R"({"model_type": "llama", "_name_or_path": "me/Tiny", "hidden_size": 128,
                   "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "intermediate_size": 256, "vocab_size": 1000, "max_position_embeddings": 512,
                   "rope_theta": 500000.0})");
  submit.write("mpt.yaml",
               "model: {name: mpt_causal_lm, d_model: 128, n_heads: 2, n_layers: 2, "
               "max_seq_len: 64, vocab_size: 1000}\noptimizer: {lr: 3.0e-4}\n");
  const CommandResult result =
      submit.run({"-m", "config.json", "mpt.yaml", "--seq_lens", "64", "--batch_sizes", "8",
                  "--microbatch_size", "1", "-g", "8", "-c", "mpt-published", "--gpu_types",
                  "h100_80gb", "--json"});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const auto points = nlohmann::json::parse(result.out).at("points");
  REQUIRE(points.size() == 2);
  CHECK(points[0].at("label") == "Tiny");
  CHECK(points[0].at("slug") == "tiny-s64-8g");
  CHECK(points[0].at("point").at("model").at("rope_theta") == 500000);
  CHECK(points[0].at("point").at("model").at("norm_eps") == 1e-6);
  CHECK(points[1].at("label") == "mpt");
  CHECK(points[1].at("point").at("model").at("lr") == 3e-4);
  submit.write("other.json", R"({"model_type": "falcon"})");
  CHECK(submit.fault({"-m", "other.json"}, ExitCode::refused) ==
        "other.json:model_type: model_type 'falcon' is not built; one of llama, qwen2, mistral, "
        "gpt2, mpt");
}

TEST_CASE("the README's example of llm-foundry is 8 points, not 20") {
  const auto planned =
      plan({"-m", "13b", "30b", "-t", "fp16", "-b", "21", "21", "-s", "11", "14", "-g", "8", "-c",
            "mpt-published", "--gpu_types", "h100_80gb", "--activation_checkpointing"});
  CHECK(planned.points.size() + planned.drops.size() == 8);
  // 30b on 8 GPUs has no room for one sequence of 2^14.
  REQUIRE(planned.points.size() == 7);
  CHECK(planned.drops.at(0).find("memory") != std::string::npos);
  std::set<std::int64_t> tokens;
  for (const auto& point : planned.points) {
    tokens.insert(point.global_batch * point.seq_len);
    CHECK(point.precision == Precision::amp_fp16);
    CHECK(point.gpus == 8);
  }
  CHECK(tokens == std::set<std::int64_t>{1 << 21});
}

TEST_CASE("on a cluster with GPUs: one node by default, every kind of GPU") {
  const auto planned =
      plan({"-m", "7b", "-c", "mpt-published", "--batch_sizes", "48", "--microbatch_size", "1"});
  REQUIRE(planned.points.size() == 3);
  CHECK(planned.points[0].gpu == "h100_80gb");
  CHECK(planned.points[2].gpu == "a100_40gb");
  CHECK(planned.points[0].gpus == 8);
  CHECK(planned.points[0].threads == 0);
  CHECK(planned.points[0].seq_len == 2048);
  CHECK(planned.points[0].steps == 30);
  CHECK(planned.points[0].precision == Precision::amp_bf16);
  CHECK(planned.points[0].mixed_precision == MixedPrecision::default_);
}

TEST_CASE("llm-foundry's names and prefixes are the same flags") {
  const auto ours = plan({"-m",
                          "7b",
                          "-c",
                          "mpt-published",
                          "--gpu_types",
                          "h100_80gb",
                          "-g",
                          "8",
                          "16",
                          "-t",
                          "bf16",
                          "-s",
                          "11",
                          "12",
                          "--accum",
                          "2",
                          "--microbatch_size",
                          "6",
                          "--sharding_strategy",
                          "SHARD_GRAD_OP",
                          "--activation_checkpointing",
                          "full",
                          "--mixed_precision",
                          "PURE"});
  const auto theirs = plan({"--model_yaml",
                            "7b.yaml",
                            "--cluster",
                            "mpt-published",
                            "--gpu_type",
                            "h100_80gb",
                            "--gpu_num",
                            "8",
                            "16",
                            "--precision",
                            "bf16",
                            "--seq_len_exp",
                            "11",
                            "12",
                            "--accum",
                            "2",
                            "--microbatch_size",
                            "6",
                            "--fsdp_config_shard_strategy",
                            "SHARD_GRAD_OP",
                            "--fsdp_config_activation_checkpointing",
                            "--fsdp_config_mixed_precision",
                            "PURE",
                            "--attn_impl",
                            "flash",
                            "--fsdp_config_limit_all_gathers",
                            "--fsdp_config_forward_prefetch",
                            "true",
                            "--fsdp_config_backward_prefetch",
                            "BACKWARD_PRE",
                            "--activation_cpu_offload",
                            "False",
                            "--pad_vocab_multiple",
                            "128"});
  CHECK(ours.points == theirs.points);
  CHECK(ours.points.size() == 4);
  CHECK(ours.labels == theirs.labels);
  CHECK(theirs.err == ours.err);  // no word about a flag
}

TEST_CASE("dead flags are taken with one line of warning each") {
  const auto planned = plan({"-m", "125m", "--batch_sizes", "8", "--wandb", "false", "--git_branch",
                             "main", "--git_commit", "v0.0.4", "--image", "x/y:z"});
  CHECK(planned.points.size() == 1);
  CHECK(planned.err.starts_with("submit: --wandb: ignored, "));
  CHECK(std::ranges::count(planned.err, '\n') == 4);
}

TEST_CASE("--axis adds axes, --set sets a value for every point") {
  const auto planned = plan({"-m", "cpu-2m", "--batch_sizes", "8", "2^4", "--seq_lens", "100",
                             "--axis", "env.NCCL_PROTO=null,LL128", "seed=1,2", "--set",
                             "threads=2", "--steps", "12", "--warmup", "3"});
  REQUIRE(planned.points.size() == 8);
  for (const auto& point : planned.points) {
    CHECK(point.threads == 2);
    CHECK(point.steps == 12);
    CHECK(point.gpus == 1);
    CHECK(point.sharding_strategy == Sharding::no_shard);
  }
}

TEST_CASE("--exact-steps and deterministic are a GPU's: on a CPU they change nothing") {
  const auto with = [](std::vector<std::string> cluster) {
    cluster.insert(cluster.end(), {"-m", "125m", "--batch_sizes", "8", "--exact-steps", "--set",
                                   "deterministic=true"});
    return plan(cluster).points.at(0);
  };
  const auto gpu = with({"-c", "mpt-published", "--gpu_types", "h100_80gb", "-g", "8"});
  CHECK(gpu.exact_steps);
  CHECK(gpu.deterministic);
  CHECK(with({"-c", "local"}) == plan({"-m", "125m", "--batch_sizes", "8"}).points.at(0));
}

TEST_CASE("fused_gelu is for gelu_tanh: another model's point is the same with it") {
  const std::vector<std::string> both{"-m",         "gpt2-124m", "cpu-2m",
                                      "--seq_lens", "64",        "--batch_sizes",
                                      "8",          "--axis",    "fused_gelu=false,true"};
  const auto planned = plan(both);
  REQUIRE(planned.points.size() == 3);
  int fused = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!planned.points[i].fused_gelu) continue;
    ++fused;
    CHECK(planned.labels[i] == "gpt2-124m");
  }
  CHECK(fused == 1);
  REQUIRE(planned.drops.size() == 1);
  CHECK(planned.drops[0].starts_with("duplicate: same as "));
  // A table of points that all are without it does not speak of it.
  const SubmitProgram submit;
  const auto has_column = [&](const std::vector<std::string>& arguments) {
    return std::regex_search(submit.run(arguments).out, std::regex("\nmodel .* fused_gelu "));
  };
  CHECK(has_column(both));
  CHECK_FALSE(has_column({"-m", "cpu-2m", "--seq_lens", "64", "--batch_sizes", "8", "--axis",
                          "fused_gelu=false,true"}));
  // Nor does what is dropped of such a model, unless that is why.
  const auto json = nlohmann::json::parse(
      submit
          .run({"-m", "gpt2-124m", "cpu-2m", "--seq_lens", "64", "--batch_sizes", "8", "--set",
                "fused_gelu=true", "seed=1", "--where", "seed == 2", "--json"})
          .out);
  REQUIRE(json.at("dropped").size() == 2);
  for (const auto& drop : json.at("dropped")) {
    const bool says = drop.at("values").dump().find("fused_gelu") != std::string::npos;
    CHECK(says == (drop.at("label") == "gpt2-124m"));
  }
}

TEST_CASE("--seq_lens, -s, -b and --batch_sizes span together") {
  const auto planned = plan({"-m", "cpu-2m", "-s", "7", "8", "--seq_lens", "100", "-b", "10", "11",
                             "--batch_sizes", "3"});
  // 100 does not divide 2^10 or 2^11 tokens.
  CHECK(planned.points.size() == 7);
  REQUIRE(planned.drops.size() == 2);
  CHECK(planned.drops[0] == "batch: 1024 tokens are no whole number of sequences of 100");
}

TEST_CASE("a sweep file, another cluster, narrowed and changed from outside") {
  const auto whole = plan({"--sweep", "mpt-published"});
  CHECK(whole.points.size() == 216);
  const auto some = plan({"--sweep", "mpt-published", "--where",
                          "model == '7b' and gpu == 'h100_80gb'", "--set", "steps=50"});
  CHECK(some.points.size() == 9);
  CHECK(some.drops.size() == 207);
  CHECK(some.points.front().steps == 50);

  SubmitProgram submit;
  submit.write("mine.yaml",
               "tessera_cluster: 1\nkind: slurm\ngpus: {h100_80gb: {per_node: 8, nodes: 2}}\n");
  const auto result = submit.run({"--sweep", "mpt-published", "-c", "mine.yaml", "--json"});
  CHECK(result.exit_code == 0);
  const auto json = nlohmann::json::parse(result.out);
  CHECK(json.at("points").size() + json.at("dropped").size() == 216);
  for (const auto& each : json.at("points")) {
    CHECK(each.at("point").at("cluster") == "mine");
    CHECK(each.at("point").at("gpus") <= 16);
  }
}

TEST_CASE("the table shows 40 points and counts the rest, --all shows all") {
  const SubmitProgram submit;
  // A row, or what is a block in place of a row, ends with the point's id.
  const auto points = [](const std::string& text) {
    const std::regex id("[0-9a-f]{12}\n");
    return std::distance(std::sregex_iterator(text.begin(), text.end(), id), {});
  };
  const auto some = submit.run({"--sweep", "mpt-published"});
  CHECK(some.exit_code == 0);
  CHECK(points(some.out) == 40);
  CHECK(some.out.find("... 176 more, shown with --all; points by axis:") != std::string::npos);
  CHECK(some.out.find("\n  precision: amp_bf16 209, amp_fp8 7\n") != std::string::npos);
  CHECK(some.out.find("\n216 points of project mpt. Submit with --RUN.\nGPU-hours: ") !=
        std::string::npos);
  CHECK(some.out.ends_with(": MFU of the nearest published row, 14.4 to 64.2 %\n"));
  CHECK(points(submit.run({"--sweep", "mpt-published", "--all"}).out) == 216);
  const auto few = submit.run({"--sweep", "quickstart"});
  CHECK(points(few.out) == 16);
  CHECK(few.out.find("shown with --all") == std::string::npos);
}

TEST_CASE("the table has a column for every setting that varies, and tells the others once") {
  const SubmitProgram submit;
  const std::vector<std::string> base{"-m", "cpu-2m", "--batch_sizes", "8", "--seq_lens", "64"};
  const std::string usual = submit.run(base).out;
  CHECK(usual.starts_with("Common: seq_len=64 cluster=local gpus=1 gpu=cpu global_batch=8 "));
  CHECK(usual.find("\n\nmodel   id\ncpu-2m  ") != std::string::npos);
  for (const auto& [axis, first, second] :
       {std::tuple<std::string, std::string, std::string>{"env.FOO", "null", "a"},
        {"threads", "1", "2"},
        {"seed", "1", "2"},
        {"deterministic", "false", "true"},
        {"exact_steps", "false", "true"}}) {
    // On a CPU these two make no difference.
    const bool on_gpu = axis == "deterministic" || axis == "exact_steps";
    auto arguments = on_gpu ? std::vector<std::string>{"-m",
                                                       "7b",
                                                       "-c",
                                                       "mpt-published",
                                                       "--gpu_types",
                                                       "h100_80gb",
                                                       "--batch_sizes",
                                                       "48",
                                                       "--microbatch_size",
                                                       "6"}
                            : base;
    arguments.insert(arguments.end(), {"--axis", fmt::format("{}={},{}", axis, first, second)});
    const auto result = submit.run(arguments);
    CAPTURE(result.err);
    CAPTURE(result.out);
    CHECK(result.exit_code == 0);
    const std::string model = on_gpu ? "7b" : "cpu-2m";
    const std::regex table(fmt::format("\nmodel +{} +id\n{} +{} +[0-9a-f]{{12}}\n{} +{} +", axis,
                                       model, first, model, second));
    CHECK(std::regex_search(result.out, table));
    CHECK(usual.find(axis) == std::string::npos);
  }
  auto many = base;
  many.insert(many.end(),
              {"--axis", "env.FOO=a,b", "seed=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "threads=1,2"});
  const std::string counted = submit.run(many).out;
  CHECK(counted.find("\n  env.FOO: a 30, b 30\n") != std::string::npos);
  CHECK(counted.find("\n  threads: 1 30, 2 30\n") != std::string::npos);
}

TEST_CASE("no line of a plan is wider than 80 columns") {
  const SubmitProgram submit;
  const std::vector<std::string> wide{"--sweep", "mpt-published"};
  const std::vector<std::string> cpu{
      "-m",          "cpu-2m",    "cpu-6m",     "--batch_sizes", "8",    "16",     "--seq_lens",
      "64",          "128",       "-t",         "fp32",          "bf16", "--axis", "seed=1,2",
      "threads=1,2", "--project", "a-long-name"};
  const std::vector<std::string> dropped{"-m", "7b", "70b",         "-c",        "mpt-published",
                                         "-g", "8",  "--gpu_types", "a100_40gb", "--batch_sizes",
                                         "64"};
  for (const auto& base : {wide, cpu, dropped}) {
    for (const std::string extra : {"--all", "--memory"}) {
      auto arguments = base;
      arguments.push_back(extra);
      const auto result = submit.run(arguments);
      CHECK(result.exit_code == 0);
      std::istringstream lines(result.out);
      for (std::string line; std::getline(lines, line);) {
        CAPTURE(line);
        CHECK(line.size() <= 80);
      }
    }
  }
}

TEST_CASE("no point left: the reasons, and an exit code of its own") {
  const auto planned = plan({"-m", "7b", "--batch_sizes", "9", "-g", "8"}, 4);
  CHECK(planned.points.empty());
  CHECK(planned.drops ==
        std::vector<std::string>{"batch: a global batch of 9 is not divisible by 8 ranks"});
  CHECK(planned.err == "submit: no point is left; 1 dropped: 1 batch\n");
}

TEST_CASE("help and version") {
  const SubmitProgram submit;
  CHECK(submit.run({"--help"}).exit_code == 0);
  CHECK(submit.run({"--help"}).out.find("--seq_lens") != std::string::npos);
  // As the trainer of the same build says it.
  const auto version = submit.run({"--version"});
  CHECK(version.exit_code == 0);
  const CommandResult trainer =
      run_command({std::string(std::getenv("TESSERA_BIN")) + "/trainer", "--version"});
  CHECK(trainer.out.starts_with("trainer "));
  CHECK(version.out == "submit" + trainer.out.substr(std::string("trainer").size()));
}

TEST_CASE("sweep.sh is the published sweep") {
  const auto result = run_command({"./sweep.sh", "--json"});
  CHECK(result.exit_code == 0);
  CHECK(nlohmann::json::parse(result.out).at("points").size() == 216);
}
