// SPDX-License-Identifier: Apache-2.0
// What bad input gets: one line with where, what and what would be right, the documented exit code,
// and nothing written.
#include <doctest/doctest.h>

#include "tests/apps/submit/submit_program.h"

using namespace tessera;
using test::SubmitProgram;

namespace {

std::string flags(std::vector<std::string> more, ExitCode code = ExitCode::usage) {
  const SubmitProgram submit;
  std::vector<std::string> arguments{"-m", "7b", "--batch_sizes", "8"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return submit.fault(arguments, code);
}

std::string only(const std::vector<std::string>& arguments, ExitCode code = ExitCode::usage) {
  return SubmitProgram().fault(arguments, code);
}

std::string sweep(const std::string& yaml, ExitCode code = ExitCode::input) {
  SubmitProgram submit;
  submit.write("s.yaml", "tessera_sweep: 1\n" + yaml);
  return submit.fault({"--sweep", "s.yaml"}, code);
}

}  // namespace

TEST_CASE("unknown names say the nearest") {
  CHECK(only({"-m", "7bb", "--batch_sizes", "8"}) == "-m: unknown model '7bb'; did you mean 7b?");
  CHECK(flags({"-c", "lokal"}) == "-c: unknown cluster 'lokal'; did you mean local?");
  CHECK(flags({"--gpu_types", "h100_80g"}) ==
        "--gpu_types: unknown GPU 'h100_80g'; did you mean h100_80gb?");
  CHECK(flags({"--gpu_types", "H200"}) == "--gpu_types: unknown GPU 'H200'; did you mean h200?");
  CHECK(flags({"--gpu_types", "h100"}) ==
        "--gpu_types: unknown GPU 'h100'; did you mean h100_80gb or h100_nvl or h100_pcie?");
  CHECK(flags({"-t", "amp_bf61"}) == "-t: unknown value 'amp_bf61'; did you mean amp_bf16?");
  CHECK(flags({"--sharding_strategy", "FULLSHARD"}) ==
        "--sharding_strategy: unknown value 'FULLSHARD'; did you mean FULL_SHARD?");
  CHECK(flags({"--axis", "sed=1"}) == "--axis: 'sed' is no axis; did you mean seed?");
  CHECK(flags({"--seqlens", "1"}) == "--seqlens: is no flag of submit; did you mean --seq_lens?");
  CHECK(flags({"--only", "failde"}) == "--only: unknown value 'failde'; did you mean failed?");
  CHECK(only({"--sweep", "quickstrat"}) ==
        "--sweep: no sweep file 'quickstrat'; did you mean quickstart?");
  CHECK(only({"statsu"}) == "statsu: is no verb of submit; did you mean status?");
  CHECK(only({"myproject"}) ==
        "myproject: is no verb of submit; give a project with --project, a sweep with --sweep");
}

TEST_CASE("numbers are decimal, in range and never saturate") {
  CHECK(flags({"-g", "011"}) == "-g: '011' has a leading zero; write a decimal integer or 2^n");
  CHECK(flags({"-s", "011", "12"}) ==
        "-s: '011' has a leading zero; write a decimal integer or 2^n");
  CHECK(flags({"-s", "-1", "12"}) == "-s: -1 is out of range; from 0 to 30");
  CHECK(flags({"-s", "11", "64"}) == "-s: 64 is out of range; from 0 to 30");
  CHECK(flags({"-s", "11", "99999999999999999999"}) ==
        "-s: '99999999999999999999' does not fit 64 bits; write a decimal integer or 2^n");
  CHECK(flags({"-s", "14", "11"}) == "-s: the first exponent 14 is larger than the last 11");
  CHECK(flags({"-s", "11"}) ==
        "-s: takes two exponents, the first and the last, not 1; -s 11 14 means 2^11, 2^12, 2^13, "
        "2^14");
  CHECK(only({"-m", "7b", "-b", "-3", "21"}) == "-b: -3 is out of range; from 0 to 40");
  CHECK(only({"-m", "7b", "-b", "21", "63"}) == "-b: 63 is out of range; from 0 to 40");
  CHECK(flags({"--seq_lens", "2k"}) ==
        "--seq_lens: '2k' is not a decimal integer; write a decimal integer or 2^n");
  CHECK(flags({"--steps", "1e3"}) ==
        "--steps: '1e3' is not a decimal integer; write a decimal integer or 2^n");
  CHECK(flags({"--repeats", "0"}) == "--repeats: 0 is out of range; from 1 to 99");
  CHECK(flags({"--max-parallel", "-1"}) == "--max-parallel: -1 is out of range; from 1 to 1024");
  CHECK(flags({"--steps", "5"}).find("warmup 10 of 5 steps leaves nothing to measure") !=
        std::string::npos);
}

TEST_CASE("what contradicts or is missing") {
  CHECK(only({}) == "-m: no model is given; for example -m 7b, or --sweep FILE");
  CHECK(only({"-m", "7b"}) ==
        "a point lacks 'batch'; give -b, --batch_sizes or --microbatch_size, or set it in the "
        "sweep file");
  CHECK(flags({"--accum", "2"}) ==
        "--accum: the batch is already given by -b or --batch_sizes; keep one of them");
  CHECK(flags({"--axis", "gpus=1,2", "-g", "4"}) ==
        "--axis: 'gpus' is already given by another flag; keep one of them");
  CHECK(flags({"--set", "seq_len=8"}) ==
        "--set: 'seq_len' is already given by another flag; keep one of them");
  CHECK(flags({"--set", "steps"}) == "--set: 'steps' has no value; write --set steps=VALUE");
  CHECK(only({"--sweep", "quickstart", "-m", "7b"}).starts_with("-m: the sweep file says what"));
  CHECK(flags({"--where", "gpus = 8"}) ==
        "--where: column 6 of the expression: '=' does not belong here; comparison is ==");
  CHECK(only({"status", "-m", "7b"}).starts_with("-m: does not go with submit status"));
}

TEST_CASE("a flag that is empty, given twice or without its value is named") {
  for (const char* flag :
       {"--steps", "--warmup", "--workspace", "--project", "--where", "--only", "--repeats",
        "--max-parallel", "--gpu-catalogue", "--attn_impl", "--pack"})
    CHECK(flags({flag, ""}) == std::string(flag) + ": is empty");
  CHECK(only({"--sweep", ""}) == "--sweep: is empty");
  CHECK(only({"-m", ""}) == "--models: is empty");
  CHECK(flags({"-t", "fp32", ""}) == "--precisions: is empty");
  CHECK(flags({"--steps", "20", "--steps", "30"}) == "--steps: is given twice; give it once");
  CHECK(flags({"--steps"}) == "--steps: needs a value");
  CHECK(flags({"--RUN", "--json"}) == "--json: prints a plan, --RUN submits it; keep one of them");
}

TEST_CASE("folders and other things in a file's place") {
  CHECK(only({"--sweep", "/tmp"}) == "--sweep: '/tmp' is a folder; name a sweep file in it");
  CHECK(only({"--sweep", "/dev/null"}, ExitCode::input) == "/dev/null: is empty");
  CHECK(only({"-m", "/tmp", "--batch_sizes", "8"}) ==
        "-m: '/tmp' is a folder; name a model file in it");
  CHECK(flags({"-c", "/tmp"}) == "-c: '/tmp' is a folder; name a cluster file in it");
  CHECK(flags({"--gpu-catalogue", "/tmp"}, ExitCode::io) == "/tmp: cannot be read: Is a directory");
}

TEST_CASE("illegal projects") {
  const std::string right =
      "; up to 16 of a-z, 0-9 and single dashes, beginning with a letter: mpt-h100";
  CHECK(flags({"--project", "A"}) == "--project: project 'A' holds 'A'" + right);
  CHECK(flags({"--project", "../up"}) == "--project: project '../up' holds '.'" + right);
  CHECK(flags({"--project", "a--b"}).find("holds '--'") != std::string::npos);
  CHECK(only({"status", ""}) == "PROJECT: is empty");
  CHECK(only({"cancel", "../up"}).starts_with("cancel: project '../up' holds '.'"));
  CHECK(flags({"--project", "abcdefghijklmnopq"}).find("longer than 16") != std::string::npos);
  CHECK(sweep("project: 7b\nmatrix: {model: 7b, seq_len: 8}\nbatch: {samples: 8}\n") ==
        "s.yaml:2:10: project '7b' does not begin with a letter" + right);
}

TEST_CASE("a sweep file's faults have file, line and column") {
  CHECK(sweep("matrx: {model: 7b}\n") ==
        "s.yaml:2:1: unknown key 'matrx' in a sweep; did you mean matrix?");
  CHECK(sweep("matrix: {model: 7b}\nmatrix: {model: 13b}\n") ==
        "s.yaml:3:1: key 'matrix' stands twice in this mapping; keep one of them");
  CHECK(sweep("matrix: {seq_len: many}\n") ==
        "s.yaml:2:19: 'many' is not a decimal integer; write a decimal integer or 2^n");
  CHECK(sweep("matrix: {seq_len: 011}\n") ==
        "s.yaml:2:19: '011' has a leading zero; write a decimal integer or 2^n");
  CHECK(sweep("matrix: {model: 7bb, seq_len: 8}\nbatch: {samples: 8}\n") ==
        "s.yaml:2:17: unknown model '7bb'; did you mean 7b?");
  CHECK(
      sweep("matrix: {model: 7b, seq_len: 8}\n").starts_with("s.yaml:2:9: a point lacks 'batch'"));
  CHECK(sweep("matrix: {\n").starts_with("s.yaml:3:1: not valid YAML"));
  CHECK(only({"--sweep", "no/such.yaml"}) == "--sweep: no sweep file 'no/such.yaml'");
}

TEST_CASE("nothing left is not a wrong input") {
  CHECK(sweep("matrix: {model: 7b, seq_len: 8, gpus: 3}\nbatch: {samples: 8}\n", ExitCode::empty) ==
        "no point is left; 1 dropped: 1 batch");
  CHECK(sweep("project: p\n", ExitCode::empty) == "no point is left; the sweep is empty");
}

TEST_CASE("how it is submitted: wrong values are named, and what contradicts each other") {
  CHECK(flags({"--pack", "2"}).starts_with("--pack: '2' is no duration"));
  CHECK(flags({"--time", "soon"}).starts_with("--time: 'soon' is no duration"));
  CHECK(flags({"--rate", "fast"}) == "--rate: 'fast' is not a positive number");
  CHECK(flags({"--max-gpu-hours", "0"}) == "--max-gpu-hours: '0' is not a positive number");
  CHECK(flags({"--max-in-flight", "0"}).starts_with("--max-in-flight: 0 is out of range"));
  CHECK(flags({"--only", "stal"}) == "--only: unknown value 'stal'; did you mean stale?");
  CHECK(flags({"--RUN", "--check"}) == "--check: submits nothing, --RUN does; keep one of them");
  CHECK(flags({"--RUN", "--render", "x"}) ==
        "--render: submits nothing, --RUN does; keep one of them");
  CHECK(flags({"--watch"}) == "--watch: does not go with submit; write submit status --watch");
  CHECK(only({"-m", "cpu-2m", "-s", "7", "7", "--batch_sizes", "8", "--RUN", "--pack", "2h"},
             ExitCode::refused) ==
        "--pack: this machine has no allocations to share; leave it out: runs follow each other "
        "anyway");
}

TEST_CASE("--RUN refuses what can only be planned") {
  SubmitProgram submit;
  submit.write("k8s.yaml",
               "tessera_cluster: 1\nkind: kubernetes\ngpus: {cpu: {per_node: 1}}\n"
               "trainer: {image: x}\n");
  CHECK(submit.fault({"-m", "cpu-2m", "-s", "7", "7", "--batch_sizes", "8", "--microbatch_size",
                      "1", "-c", "./k8s.yaml", "--set", "threads=1", "--RUN"},
                     ExitCode::refused) ==
        "--RUN: cluster k8s is of kind kubernetes, which can be planned for but not run on yet; "
        "run on a cluster of kind local or slurm");
  CHECK(sweep("matrix: {model: 7b, seq_len: 8}\nbatch: {samples: 9}\n"
              "defaults: {gpus: 2}\n",
              ExitCode::empty)
            .starts_with("no point is left"));
}

TEST_CASE("llm-foundry's settings that are not done are refused with the reason") {
  CHECK(flags({"--attn_impl", "torch"}, ExitCode::refused).starts_with("--attn_impl: 'torch' is"));
  CHECK(flags({"--fsdp_config_limit_all_gathers", "false"}, ExitCode::refused)
            .find("cannot be turned off") != std::string::npos);
  CHECK(flags({"--fsdp_config_forward_prefetch", "no"}, ExitCode::refused)
            .find("cannot be turned off") != std::string::npos);
  CHECK(flags({"--fsdp_config_backward_prefetch", "NONE"}, ExitCode::refused)
            .find("give BACKWARD_PRE") != std::string::npos);
  CHECK(flags({"--pad_vocab_multiple", "64"}, ExitCode::refused).find("give 128") !=
        std::string::npos);
  CHECK(flags({"--activation_cpu_offload", "perhaps"}) ==
        "--activation_cpu_offload: 'perhaps' is not a boolean; write true or false");
  CHECK(flags({"--data_remote", "s3://x"}, ExitCode::refused)
            .find("data is synthetic or a token file") != std::string::npos);
  CHECK(flags({"--wandb", "maybe"}) == "--wandb: 'maybe' is not a boolean; write true or false");
}
