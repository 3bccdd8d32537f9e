// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/data.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/trainer/train/training.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

// Returns tokens and targets of the global batch; they do not depend on the microbatch.
std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> batch(std::int64_t microbatch) {
  memory::Config config = small_setup().memory;
  config.microbatch = microbatch;
  Loader loader(config, synthetic_tokens(17, config.shape.vocab));
  std::vector<std::int32_t> all(static_cast<std::size_t>(loader.elements()));
  loader.fill(3, all);
  std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>> result;
  const auto sizes = memory::microbatches(config.device_batch, microbatch);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const memory::BatchLayout layout = memory::batch_layout(config, sizes[i]);
    const auto begin = all.begin() + loader.begin(i);
    result.first.insert(result.first.end(), begin, begin + layout.rows);
    result.second.insert(result.second.end(), begin + layout.targets,
                         begin + layout.targets + layout.rows);
  }
  return result;
}

}  // namespace

TEST_CASE("the global batch is the same for every split") {
  CHECK(batch(5) == batch(2));
  CHECK(batch(5) == batch(1));
  CHECK(batch(5).first.size() == 5 * 19);
}

TEST_CASE("targets are the next tokens, and every position has one") {
  const auto [tokens, targets] = batch(5);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    CHECK(targets[i] >= 0);
    if ((i + 1) % 19 != 0) CHECK(targets[i] == tokens[i + 1]);
  }
}

TEST_CASE("tokens are uniform over the vocabulary and differ by seed, step and row") {
  std::vector<std::int32_t> tokens(40001), other(40001);
  const TokenSource source = synthetic_tokens(17, 10);
  source(1, 0, tokens);
  std::vector<double> counts(10);
  for (const std::int32_t token : tokens) ++counts.at(static_cast<std::size_t>(token));
  for (const double count : counts) CHECK(std::abs(count - 4000) < 5 * std::sqrt(4000.0));
  source(1, 0, other);
  CHECK(tokens == other);
  source(2, 0, other);
  CHECK(tokens != other);
  source(1, 1, other);
  CHECK(tokens != other);
  synthetic_tokens(18, 10)(1, 0, other);
  CHECK(tokens != other);
}

TEST_CASE("order sorts the rows by token, starts says where each token's begin") {
  const memory::Config config = small_setup().memory;
  Loader loader(config, synthetic_tokens(17, 7));  // many of each
  std::vector<std::int32_t> all(static_cast<std::size_t>(loader.elements()));
  loader.fill(1, all);
  for (std::size_t i = 0; i < loader.microbatches(); ++i) {
    const memory::BatchLayout layout = memory::batch_layout(config, i < 2 ? 2 : 1);
    const std::int32_t* part = all.data() + loader.begin(i);
    const std::int32_t* starts = part + layout.starts;
    CHECK(starts[0] == 0);
    CHECK(starts[256] == layout.rows);
    for (std::int32_t token = 0; token < 256; ++token) {
      for (std::int32_t at = starts[token]; at < starts[token + 1]; ++at) {
        const std::int32_t row = part[layout.order + at];
        CHECK(part[row] == token);
        if (at > starts[token]) CHECK(row > part[layout.order + at - 1]);
      }
    }
  }
}
