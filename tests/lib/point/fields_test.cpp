// SPDX-License-Identifier: Apache-2.0
// What is made of the table of fields: the point in words, and the documentation.
#include "lib/point/fields.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "lib/point/identity.h"
#include "lib/point/point_values.h"
#include "lib/point/told_settings.h"

using namespace tessera;
using namespace tessera::sweep;

namespace {

template <class T>
T any(const Field<T>& field, std::mt19937_64& random) {
  if constexpr (std::is_enum_v<T>) {
    constexpr auto& names = Names<T>::table;
    return names[random() % std::size(names)].first;
  } else if constexpr (std::is_same_v<T, bool>) {
    return random() % 2 == 0;
  } else if constexpr (std::is_same_v<T, std::string>) {
    const auto number = std::to_string(1 + random() % 9);
    return field.check != nullptr ? "first-" + number : "./text" + number;
  } else {
    const auto [lowest, highest] = field.range;
    const auto count = static_cast<std::uint64_t>(highest - lowest + 1);
    return static_cast<T>(static_cast<std::uint64_t>(lowest) + random() % count);
  }
}

Point random_point(std::mt19937_64& random) {
  Point point;
  point.model = {.d_model = 64,
                 .n_layers = 12,
                 .n_heads = 4,
                 .n_kv_heads = 4,
                 .head_dim = 16,
                 .ffn = 256,
                 .vocab = 512};
  each_setting([&](const auto& field) {
    if (random() % 2 == 0 || field.written == Written::always) field.in(point) = any(field, random);
  });
  return point;
}

std::string file_text(const char* path) {
  std::ifstream in(path);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a point comes back from its JSON forms and from its words") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 500; ++i) {
    const Point point = random_point(random);
    CAPTURE(point_json(point));
    CHECK(parse_point(parse_json(point_json(point), "full")) == point);
    CHECK(parse_point(parse_json(canonical_json(point), "hashed")) == point);
    Point read;
    // One device shards nothing, so that its words do not say it.
    if (point.gpus == 1) read.sharding_strategy = Sharding::no_shard;
    for (const auto& [key, text] : values_of(point)) set_value(read, key, text);
    read.model = point.model;
    read.nodes = point.nodes;
    CHECK(read == point);
  }
}

TEST_CASE("every field is documented as its row says") {
  const std::string formats = file_text("docs/formats.md");
  const Point usual;
  each_field([&]<class T>(const Field<T>& field) {
    std::string choices;
    std::string otherwise;
    if constexpr (is_setting<T>) {
      choices = choices_text(field);
      if (field.written != Written::always) otherwise = value_text(field, field.in(usual));
    }
    const std::string line =
        fmt::format("\n| `{}` | {} | {} | {} |\n", field.key, field.help, choices, otherwise);
    CAPTURE(line);
    CHECK(formats.find(line) != std::string::npos);
  });
}

TEST_CASE("a run that does as asked tells no more than was asked for") {
  Point point;
  point.global_batch = 8;
  point.precision = Precision::fp32;
  point.deterministic = true;
  const ToldSettings told = told_settings(point);
  CHECK(told.get<&Point::global_batch>() == 8);
  CHECK(told.get<&Point::precision>() == "fp32");
  CHECK(told.get<&Point::activation_cpu_offload>() == false);
  CHECK(told.get<&Point::warmup>() == 10);
  // Not said, an automatic one, the trainer's to decide, in no record.
  CHECK_FALSE(told.get<&Point::seq_len>());
  CHECK_FALSE(told.get<&Point::microbatch_size>());
  CHECK_FALSE(told.get<&Point::deterministic>());
  CHECK_FALSE(told.get<&Point::exact_steps>());
}
