// SPDX-License-Identifier: Apache-2.0
#include "lib/model/model_file.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

#include "lib/model/data_folder.h"
#include "tests/csv.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::model;

namespace {

constexpr auto kSmall =
    "tessera_model: 1\nname: mine\nd_model: 64\nn_layers: 2\nn_heads: 2\nffn: 256\nvocab: 512\n"
    "max_seq_len: 128\nlr: 1.0e-3\n";

std::string fault(const std::string& yaml) {
  try {
    parse_model(parse_yaml(yaml, "m.yaml"), "m.yaml");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::input);
    return error.what();
  }
  return "no error";
}

std::string unknown(const std::string& name) {
  try {
    find_model(name, "--model_yamls");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::input);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("every published row: the parameter count is n_params exactly") {
  const auto rows = test::read_csv("yamls/reference/mpt-published.csv");
  REQUIRE(rows.size() == 216);
  for (const auto& row : rows) {
    CAPTURE(row.at("model"));
    CAPTURE(row.at("seq_len"));
    const Model model = find_model(row.at("model"), "");
    CHECK(std::to_string(parameter_count(model.shape, std::stoll(row.at("seq_len")))) ==
          row.at("n_params"));
  }
}

TEST_CASE("the built-in models are well formed and named as their file") {
  const auto names = built_in_models();
  REQUIRE(names.size() == 26);
  CHECK(names.front() == "125m");
  CHECK(names[8] == "70b");
  CHECK(std::vector(names.begin() + 9, names.begin() + 14) ==
        std::vector<std::string>{"cpu-2m", "cpu-6m", "cpu-20m", "gpt2-124m", "gpt2-1558m"});
  for (const auto& name : names) {
    CAPTURE(name);
    const Model model = find_model(name, "");
    CHECK(model.name == name);
    CHECK(model.shape.n_heads * model.shape.head_dim == model.shape.d_model);
    CHECK((model.shape.head_dim == 64 || model.shape.head_dim == 128));
    CHECK(model.lr > 0);
  }
  CHECK(parameter_count(find_model("cpu-2m", "").shape, 256) / 1000000 == 2);
  CHECK(parameter_count(find_model("cpu-6m", "").shape, 256) / 1000000 == 6);
}

TEST_CASE("a model is a name, a name with .yaml or a file") {
  CHECK(find_model("7b.yaml", "").name == "7b");
  const test::TemporaryFolder folder;
  const std::string path = folder / "own.yaml";
  std::ofstream(path) << kSmall;
  const Model model = find_model(path, "");
  CHECK(model.name == "mine");
  CHECK(model.source == path);
  CHECK(model.shape.head_dim == 32);
  CHECK(model.shape.n_kv_heads == 2);
  CHECK(model.shape.tied);
}

TEST_CASE("an unknown model names the nearest one") {
  CHECK(unknown("7bb") == "--model_yamls: unknown model '7bb'; did you mean 7b?");
  CHECK(unknown("llama") ==
        "--model_yamls: unknown model 'llama'; did you mean llama-2-7b or llama-3-8b or "
        "llama-3.1-70b?");
  CHECK(
      unknown("sequoia").starts_with("--model_yamls: unknown model 'sequoia'; one of 125m, 350m"));
  CHECK(unknown("no/such.yaml") == "--model_yamls: no model file 'no/such.yaml'");
  CHECK(unknown("").starts_with("--model_yamls: unknown model ''"));
}

TEST_CASE("faults of a model file have their place") {
  const std::string small = kSmall;
  CHECK(fault(small) == "no error");
  CHECK(fault(small + "tide: true\n") ==
        "m.yaml:10:1: unknown key 'tide' in a model; did you mean tied?");
  CHECK(fault(small + "lr: 2\n") ==
        "m.yaml:10:1: key 'lr' stands twice in this mapping; keep one of them");
  CHECK(fault(small + "norm: layer\n") ==
        "m.yaml:10:7: unknown value 'layer'; one of layernorm, rmsnorm");
  CHECK(fault(small + "n_kv_heads: 3\n") ==
        "m.yaml:1:1: n_heads 2 is not a multiple of n_kv_heads 3");
  CHECK(fault(small + "biases: {qkv: true}\n") == "m.yaml:10:9: biases lacks 'out'");
  CHECK(fault("tessera_model: 2\n") == "m.yaml:1:16: format 2 is not known; this version reads 1");
  std::string octal = small;
  octal.replace(octal.find("64"), 2, "011");
  CHECK(fault(octal) == "m.yaml:3:10: '011' has a leading zero; write a decimal integer or 2^n");
  CHECK(fault(small + "norm_eps: 0\n") == "m.yaml:1:1: norm_eps 0 is not between 0 and 1");
  CHECK(fault(small + "rope_theta: 5.0e+5\n") ==
        "m.yaml:1:1: rope_theta 500000 in a model whose positions are learned; leave it out");
  CHECK(fault(small + "positions: rope\nrope_theta: 1\n") ==
        "m.yaml:1:1: rope_theta 1 is not between 1 and 1e12");
  CHECK(fault(small + "positions: rope\nhead_dim: 31\n") ==
        "m.yaml:1:1: rope needs an even head_dim, not 31");
  CHECK(
      fault(small + "n_kv_heads: 2^31\nhead_dim: 2^31\n").starts_with("m.yaml:1:1: n_heads 2 is"));
  std::string deep = small;
  deep.replace(deep.find("n_layers: 2"), 11, "n_layers: 2^32");
  CHECK(fault(deep + "head_dim: 2^32\n") ==
        "m.yaml:1:1: sizes that give about 9e+21 parameters; at most 1e+15");
}

TEST_CASE("TESSERA_DATA names the folder, a wrong one is said") {
  const auto found = data_folder();
  CHECK(std::filesystem::exists(found / "gpus.yaml"));
  const test::TemporaryFolder folder;
  ::setenv("TESSERA_DATA", folder.path().c_str(), 1);
  CHECK_THROWS_AS(data_folder(), Error);
  std::filesystem::create_directories(folder / "models");
  CHECK(data_folder() == folder.path());
  ::unsetenv("TESSERA_DATA");
}
