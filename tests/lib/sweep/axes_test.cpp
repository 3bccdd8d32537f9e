// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/axes.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

using namespace tessera;
using namespace tessera::sweep;

namespace {

Setting setting(const std::string& key, const std::string& yaml) {
  return parse_setting(key, parse_yaml(yaml, "a.yaml"));
}

std::string fault_of_axis(const std::string& key, const std::string& yaml) {
  try {
    setting(key, yaml);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::input);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("values are read by their axis") {
  CHECK(setting("seq_len", "2^13").value == Scalar(std::int64_t{8192}));
  CHECK(setting("microbatch_size", "auto").value == Scalar(std::monostate{}));
  CHECK(setting("precision", "bf16").value == Scalar(std::string("amp_bf16")));
  CHECK(setting("precision", "fp32").value == Scalar(std::string("fp32")));
  CHECK(setting("exact_steps", "true").value == Scalar(true));
  CHECK(setting("fused_gelu", "true").value == Scalar(true));
  CHECK(setting("env.NCCL_PROTO", "null").value == Scalar(std::monostate{}));
  CHECK(setting("env.NCCL_PROTO", "LL128").value == Scalar(std::string("LL128")));
  CHECK(setting("batch", "{accum: 2}").value == Scalar(Batch{Batch::Kind::accum, 2}));
  const Setting batch = setting("global_batch", "48");
  CHECK(batch.key == "batch");
  CHECK(batch.value == Scalar(Batch{Batch::Kind::samples, 48}));
}

TEST_CASE("a list is one choice each, a scalar is a list of one") {
  CHECK(parse_choices("seq_len", parse_yaml("[512, 1024]", "a")).size() == 2);
  CHECK(parse_choices("seq_len", parse_yaml("512", "a")).size() == 1);
  const auto batches = parse_choices("batch", parse_yaml("{per_gpu: [4, 8]}", "a"));
  REQUIRE(batches.size() == 2);
  CHECK(batches[1].value == Scalar(Batch{Batch::Kind::per_gpu, 8}));
  CHECK(parse_choices("batch", parse_yaml("[{accum: 1}, {samples: 8}]", "a")).size() == 2);
}

TEST_CASE("faults of values") {
  CHECK(fault_of_axis("seq_len", "011") ==
        "a.yaml:1:1: '011' has a leading zero; write a decimal integer or 2^n");
  CHECK(fault_of_axis("seq_len", "0") == "a.yaml:1:1: 0 is out of range; from 1 to 1073741824");
  CHECK(fault_of_axis("gpus", "-8") == "a.yaml:1:1: -8 is out of range; from 1 to 1048576");
  CHECK(fault_of_axis("seq_len", "2^99") ==
        "a.yaml:1:1: '2^99' does not fit 64 bits; write a decimal integer or 2^n");
  CHECK(fault_of_axis("precision", "amp_bf61") ==
        "a.yaml:1:1: unknown value 'amp_bf61'; did you mean amp_bf16?");
  CHECK(fault_of_axis("seqlen", "1") == "a.yaml:1:1: 'seqlen' is no axis; did you mean seq_len?");
  CHECK(fault_of_axis("env.", "1").find("is no axis") != std::string::npos);
  CHECK(fault_of_axis("env.A-B", "1").find("is no axis") != std::string::npos);
  CHECK(fault_of_axis("gpus", "null") == "a.yaml:1:1: 'gpus' has no value");
  CHECK(fault_of_axis("batch", "{accum: 2, samples: 8}") ==
        "a.yaml:1:1: a batch is given in exactly one way; samples, per_gpu, tokens or accum");
  CHECK(fault_of_axis("batch", "{sample: 8}") ==
        "a.yaml:1:2: unknown key 'sample' in a batch; did you mean samples?");
  CHECK(fault_of_axis("batch", "8") ==
        "a.yaml:1:1: a single value where a batch (a mapping) belongs");
  CHECK(fault_of_axis("data", "c4") ==
        "a.yaml:1:1: data 'c4' is not known; synthetic, or a token file; write ./c4 for a file "
        "here");
  CHECK(fault_of_axis("data", "''") == "a.yaml:1:1: the text is empty");
  CHECK(fault_of_axis("model", "''") == "a.yaml:1:1: the text is empty");
}

TEST_CASE("help says of each axis what it is and takes") {
  std::map<std::string, std::string> help;
  for (const auto& [axis, text] : axes_help()) help[axis] = text;
  for (const std::string& name : axis_names()) {
    CAPTURE(name);
    CHECK_FALSE(help[name].empty());
  }
  CHECK(help["exact_steps"] == "whether a GPU runs exactly so many steps (false, true)");
  CHECK(help.contains("env.NAME"));
}
