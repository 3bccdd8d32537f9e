// SPDX-License-Identifier: Apache-2.0
#include "lib/base/error.h"

#include <doctest/doctest.h>

using namespace tessera;

TEST_CASE("an error is one line of where, what and what would be right") {
  const Error error(ExitCode::input, "a.yaml:3:1", "unknown key 'modle'", "did you mean model?");
  CHECK(std::string(error.what()) == "a.yaml:3:1: unknown key 'modle'; did you mean model?");
  CHECK(std::string(Error(ExitCode::input, "", "a\nb\x1b[31m").what()) == "a b [31m");
  CHECK(error.where() == "a.yaml:3:1");
  CHECK(error.problem() == "unknown key 'modle'");
  CHECK(error.fix() == "did you mean model?");
  CHECK(error.without_where() == "unknown key 'modle'; did you mean model?");
  const Error wild(ExitCode::io, "a\tb", "c\nd", "e\nf");
  CHECK(wild.where() == "a b");
  CHECK(wild.without_where() == "c d; e f");
  CHECK(Error(ExitCode::io, "a", "b").without_where() == "b");
}

TEST_CASE("the nearest known name is suggested, all are listed when none is near") {
  const std::vector<std::string> models{"125m", "350m", "1b", "70b", "llama-3-8b"};
  CHECK(suggestion("lama-3-8b", models) == "did you mean llama-3-8b?");
  CHECK(suggestion("LLAMA-3-8B", models) == "did you mean llama-3-8b?");
  CHECK(suggestion("sequoia", models) == "one of 125m, 350m, 1b, 70b, llama-3-8b");
  CHECK(suggestion("x", std::vector<std::string>{}).empty());
  CHECK(did_you_mean("lama-3-8b", models) == "did you mean llama-3-8b?");
  const std::vector<std::string> flags{"--seq_len_exp", "--seq_lens", "--gpus"};
  CHECK(did_you_mean("--seq_len", flags) == "did you mean --seq_len_exp or --seq_lens?");
  CHECK(did_you_mean("--gpu", flags) == "did you mean --gpus?");
  CHECK_FALSE(did_you_mean("sequoia", models).has_value());
}

TEST_CASE("a name that differs in case alone is meant, whatever else goes on as it does") {
  const std::vector<std::string> gpus{"h100_80gb", "h100_pcie", "h200", "h200_nvl"};
  CHECK(suggestion("H200", gpus) == "did you mean h200?");
  CHECK(suggestion("H200_NVL", gpus) == "did you mean h200_nvl?");
  CHECK(suggestion("h100", gpus) == "did you mean h100_80gb or h100_pcie?");
  CHECK(suggestion("H100", gpus) == "did you mean h100_80gb or h100_pcie?");
  CHECK(suggestion("h2000", gpus) == "did you mean h200?");
}

TEST_CASE("edit distance counts swaps of neighbours once") {
  CHECK(edit_distance("modle", "model") == 1);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
}
