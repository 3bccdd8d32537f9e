// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/units.h"

#include <doctest/doctest.h>

#include <cmath>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::memory;

namespace {

model::Shape mpt_125m() {
  return {.d_model = 768,
          .n_layers = 12,
          .n_heads = 12,
          .n_kv_heads = 12,
          .head_dim = 64,
          .ffn = 3072,
          .vocab = 50368};
}

}  // namespace

TEST_CASE("units hold the model's parameters, no more and no less") {
  const model::Shape shape = mpt_125m();
  const std::vector<Unit> all = units(shape, 2048);
  CHECK(all.size() == 13);
  std::int64_t used = 0;
  for (const Unit& unit : all) {
    for (const Parameter& parameter : unit.trained.parameters)
      used += parameter.used_rows * parameter.cols;
  }
  CHECK(used == model::parameter_count(shape, 2048));
  CHECK(used == 125311488);
  CHECK(all[0].parameter("token_table").rows == 50432);
}

TEST_CASE("parameters are aligned, apart, matrices before vectors") {
  model::Shape shape = mpt_125m();
  shape.d_model = 100;  // no multiple of the alignment
  for (const Unit& unit : units(shape, 77)) {
    std::int64_t end = 0;
    for (const Parameter& parameter : unit.trained.parameters) {
      CHECK(parameter.offset % kParameterAlignment == 0);
      CHECK(parameter.offset >= end);
      CHECK((parameter.rows > 1) == (parameter.offset < unit.trained.decay_end));
      end = parameter.offset + parameter.elements();
    }
    CHECK(end <= unit.trained.elements);
    CHECK(unit.trained.elements % kParameterAlignment == 0);
  }
}

TEST_CASE("each parameter has its own random numbers, whatever biases the model has") {
  model::Shape shape = mpt_125m();
  const std::vector<Unit> with = units(shape, 64);
  shape.biases = {false, false, false, false};
  const std::vector<Unit> without = units(shape, 64);
  for (std::size_t unit = 0; unit < with.size(); ++unit) {
    for (const Parameter& parameter : without[unit].trained.parameters)
      CHECK(parameter.index == with[unit].parameter(parameter.name).index);
  }
  CHECK(with[1].trained.parameters.size() == 12);
  CHECK(without[1].trained.parameters.size() == 6);
  CHECK(with[1].parameter("qkv.weight").index != with[2].parameter("qkv.weight").index);
  CHECK_THROWS_AS(without[1].parameter("qkv.bias"), Error);
}

TEST_CASE("initial values are MPT's") {
  const std::vector<Unit> all = units(mpt_125m(), 64);
  const Unit& block = all[3];
  CHECK(block.parameter("qkv.weight").init_stddev == doctest::Approx(std::sqrt(2.0 / 768)));
  CHECK(block.parameter("down.weight").init_stddev ==
        doctest::Approx(std::sqrt(2.0 / 3072) / std::sqrt(24.0)));
  CHECK(block.parameter("out.weight").init_stddev ==
        doctest::Approx(std::sqrt(2.0 / 768) / std::sqrt(24.0)));
  CHECK(block.parameter("norm1.gain").init_mean == 1);
  CHECK(block.parameter("up.bias").init_mean == 0);
  CHECK(block.parameter("up.bias").init_stddev == 0);
  CHECK(all[0].parameter("token_table").init_stddev == doctest::Approx(std::sqrt(2.0 / 768)));
}

TEST_CASE("a pattern freezes the parameters whose names it fits") {
  const std::vector<std::string> patterns{"root.*", "block.1.*.weight"};
  CHECK(is_frozen(patterns, "root.token_table"));
  CHECK(is_frozen(patterns, "block.1.qkv.weight"));
  CHECK_FALSE(is_frozen(patterns, "block.11.qkv.weight"));
  CHECK_FALSE(is_frozen(patterns, "block.1.qkv.bias"));
  CHECK_FALSE(is_frozen({}, "root.token_table"));

  const model::Shape shape = mpt_125m();
  const std::vector<Unit> whole = units(shape, 64);
  const std::vector<Unit> some = units(shape, 64, patterns);
  CHECK(some[0].trained.parameters.empty());
  CHECK(some[0].trained.elements == 0);
  CHECK(some[0].frozen.elements == whole[0].trained.elements);
  CHECK(some[1].frozen.parameters.empty());
  CHECK(some[2].frozen.parameters.size() == 4);
  CHECK(some[2].trained.decay_end == 0);
  // Frozen or not, it begins with the same random numbers.
  CHECK(some[2].parameter("qkv.weight").index == whole[2].parameter("qkv.weight").index);
}
