// SPDX-License-Identifier: Apache-2.0
// What submit says of GPUs that are not here, that nobody knows, or that the trainer has no code
// for.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lib/base/file.h"
#include "tests/apps/submit/submit_program.h"

using namespace tessera;
using test::SubmitProgram;

TEST_CASE("an added GPU is known by name") {
  SubmitProgram submit;
  submit.write("gpus.yaml",
               "tessera_gpus: 1\nl4: {match: ['^NVIDIA L4$'], memory_gib: 22.5, peak_tflops: "
               "{amp_bf16: 121, amp_fp8: null}, source: data sheet}\n");
  submit.write("c.yaml", "tessera_cluster: 1\nkind: slurm\ngpus: {l4: {per_node: 1}}\n");
  const auto result = submit.run({"-m", "125m", "-c", "c.yaml", "-t", "fp8", "bf16",
                                  "--batch_sizes", "8", "--gpu-catalogue", "gpus.yaml"});
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("capability: l4 has no amp_fp8 units") != std::string::npos);
}

TEST_CASE("what this build's trainer computes on no device is dropped where no node was asked") {
  if (test::is_built_without_cuda()) {
    MESSAGE("skipped: built without CUDA");
    return;
  }
  SubmitProgram submit;
  submit.write("c.yaml",
               "tessera_cluster: 1\nkind: slurm\nworkspace: /w\n"
               "gpus: {h200: {per_node: 1, nodes: 4}}\n");
  const std::vector<std::string> points{"-m",     "125m",  "-c",
                                        "c.yaml", "-t",    "fp16",
                                        "fp8",    "bf16",  "-g",
                                        "1",      "2",     "--microbatch_size",
                                        "1",      "--set", "sharding_strategy=NO_SHARD"};
  const auto planned = submit.run(points);
  CAPTURE(planned.err);
  CHECK(planned.exit_code == 0);
  const std::string asks = " (of the trainer beside submit; submit doctor -c c asks the nodes')\n";
  CHECK(planned.err ==
        "submit: --RUN would drop 3 points: gpus 2: the trainer runs on at most 1" + asks +
            "submit: --RUN would drop 1 point: precision amp_fp16: the trainer has fp32, tf32, "
            "amp_bf16" +
            asks +
            "submit: --RUN would drop 1 point: precision amp_fp8: the trainer has fp32, tf32, "
            "amp_bf16" +
            asks);
  auto rendered = points;
  rendered.insert(rendered.end(), {"--render", "R", "--workspace", "/w"});
  CHECK(submit.run(rendered).out.starts_with("1 job in 2 files below "));
}

TEST_CASE("--render writes what a machine with GPUs could run, and no driver here is told once") {
  if (test::is_built_without_cuda()) {
    MESSAGE("skipped: built without CUDA");
    return;
  }
  SubmitProgram submit;
  submit.write(
      "box.yaml",
      "tessera_cluster: 1\nkind: local\n"
      "gpus: {gh200_96gb: {per_node: 1}, h100_80gb: {per_node: 1}, h200: {per_node: 1}}\n");
  std::vector<std::string> arguments{"-m", "125m",     "-c",   "box.yaml",
                                     "-t", "fp16",     "bf16", "--microbatch_size",
                                     "1",  "--render", "R"};
  const auto rendered = submit.run(arguments);
  CAPTURE(rendered.err);
  // What no machine could run is dropped: fp16.
  CHECK(rendered.exit_code == 0);
  CHECK(rendered.out.starts_with("3 jobs in 3 files below "));
  const std::string no_device =
      "gpu gh200_96gb, h100_80gb, h200: the trainer has no device for it: ";
  // Each is told how to know its GPU.
  std::string specs;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(submit.path() / "R")) {
    if (entry.path().extension() == ".json") specs += read_file(entry.path());
  }
  CHECK(
      specs.find(R"("expect":[],"expect_match":["^NVIDIA H200$"],"expect_not":["NVL","GH200"])") !=
      std::string::npos);
  if (rendered.err.empty()) return;  // there is a GPU here
  CHECK(rendered.err.starts_with("submit: --RUN would drop 3 points: " + no_device));
  CHECK(std::ranges::count(rendered.err, '\n') == 1);
  // Who asks whether it could be started here is told that it could not.
  arguments.back() = "R2";
  arguments.emplace_back("--check");
  const auto checked = submit.run(arguments);
  CHECK(checked.exit_code == static_cast<int>(ExitCode::empty));
  CHECK(checked.out.starts_with("3 jobs in 3 files below "));
}

TEST_CASE("a GPU of a cluster file that no catalogue has is told once for each cluster") {
  SubmitProgram submit;
  submit.write("c.yaml",
               "tessera_cluster: 1\nkind: slurm\nworkspace: /w\n"
               "gpus: {h2000: {per_node: 1}, H200: {per_node: 1}, h200: {per_node: 1}}\n");
  std::vector<std::string> arguments{"-m", "125m", "-c", "c.yaml", "--microbatch_size", "1", "2"};
  const auto planned = submit.run(arguments);
  CAPTURE(planned.err);
  CHECK(planned.exit_code == 0);
  const std::string rest =
      " is not in the catalogue (did you mean h200?): no memory check, and MFU will be empty "
      "unless the catalogue knows the name that its driver reports\n";
  const std::string both =
      "submit: c.yaml: GPU 'h2000'" + rest + "submit: c.yaml: GPU 'H200'" + rest;
  CHECK(planned.err.starts_with(both));
  CHECK(planned.err.find("not in the catalogue", both.size()) == std::string::npos);
  // Not of those that no point is on; and what people add is in the catalogue.
  arguments.insert(arguments.end(), {"--gpu_types", "h200"});
  CHECK(submit.run(arguments).err.find("not in the catalogue") == std::string::npos);
  submit.write(
      "gpus.yaml",
      "tessera_gpus: 1\nh2000: {match: [X], memory_gib: 300, peak_tflops: {}, source: s}\n");
  arguments.back() = "h2000";
  arguments.insert(arguments.end(), {"--gpu-catalogue", "gpus.yaml"});
  CHECK(submit.run(arguments).err.find("not in the catalogue") == std::string::npos);
}

TEST_CASE("an added GPU without reserve_gib has 2 GiB of reserve") {
  SubmitProgram submit;
  submit.write(
      "gpus.yaml",
      "tessera_gpus: 1\nz9: {match: [Z9], memory_gib: 22.5, peak_tflops: {}, source: s}\n");
  submit.write("c.yaml", "tessera_cluster: 1\nkind: slurm\ngpus: {z9: {per_node: 1}}\n");
  const auto result = submit.run(
      {"-m", "70b", "-c", "c.yaml", "--microbatch_size", "1", "--gpu-catalogue", "gpus.yaml"});
  CHECK(result.exit_code == static_cast<int>(ExitCode::empty));
  const std::string out = test::one_line(result.out);
  CHECK(out.find(" GiB, z9 has 20.50 GiB (22.5 less a reserve of 2.0): ") != std::string::npos);
}

TEST_CASE("a local cluster is one node") {
  SubmitProgram submit;
  submit.write("box.yaml", "tessera_cluster: 1\nkind: local\ngpus: {h200: {per_node: 1}}\n");
  const auto result =
      submit.run({"-m", "125m", "-c", "box.yaml", "--microbatch_size", "1", "-g", "1", "2"});
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("1 dropped: 1 cluster\n  cluster: cluster box has 1 h200 (") !=
        std::string::npos);
}

TEST_CASE("GPUs that the trainer has no code for are dropped, on this machine and unasked nodes") {
  if (test::is_built_without_cuda()) {
    MESSAGE("skipped: built without CUDA");
    return;
  }
  SubmitProgram submit;
  for (const char* kind : {"local", "slurm\nworkspace: /w"}) {
    submit.write("c.yaml", fmt::format("tessera_cluster: 1\nkind: {}\n"
                                       "gpus: {{t4: {{per_node: 1}}, quadro_rtx_6000: {{per_node: "
                                       "1}}, h200: {{per_node: 1}}}}\n",
                                       kind));
    const auto result = submit.run({"-m", "125m", "-c", "c.yaml", "--microbatch_size", "1", "-t",
                                    "fp32", "--render", "R-" + std::string(kind, 5)});
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    CHECK(result.out.starts_with("1 job in "));
  }
  const auto planned =
      submit.run({"-m", "125m", "-c", "c.yaml", "--microbatch_size", "1", "-t", "fp32"});
  CHECK(planned.err.starts_with(
      "submit: --RUN would drop 2 points: gpu t4, quadro_rtx_6000: its compute capability is 7.5, "
      "the trainer has code for "));
  CHECK(std::ranges::count(planned.err, '\n') == 1);
}

TEST_CASE("doctor on a machine without a driver says why there is no GPU, and its name once") {
  SubmitProgram submit;
  submit.write("box.yaml", "tessera_cluster: 1\nkind: local\ngpus: {h200: {per_node: 1}}\n");
  const auto result = submit.run({"doctor", "-c", "box.yaml"});
  CAPTURE(result.out);
  const auto can = nlohmann::json::parse(
      run_command({std::string(std::getenv("TESSERA_BIN")) + "/trainer", "--capabilities"}).out);
  if (!can.at("cuda").contains("none")) return;  // there is a GPU here
  CHECK(result.out.find(fmt::format("has no cuda device ({}): --RUN would drop each point",
                                    can.at("cuda").at("none").get<std::string>())) !=
        std::string::npos);
  CHECK(result.exit_code == static_cast<int>(ExitCode::refused));
  CHECK(result.err == "submit: doctor: 1 to mend\n");
}
