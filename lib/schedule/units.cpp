// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"

namespace tessera::memory {

namespace {

// Places for parameters of one unit, so that an index does not depend on which biases a model has.
constexpr std::int64_t kIndexesPerUnit = 64;

class UnitBuilder {
 public:
  UnitBuilder(std::string name, std::int64_t number, std::span<const std::string> frozen)
      : next_index_(number * kIndexesPerUnit), frozen_(frozen), unit_{std::move(name), {}, {}} {}

  void matrix(const char* name, std::int64_t rows, std::int64_t cols, std::int64_t used_rows,
              double stddev) {
    add({.name = name,
         .rows = rows,
         .cols = cols,
         .used_rows = used_rows,
         .init_stddev = static_cast<float>(stddev)},
        true);
  }
  // Takes the index of a parameter that the model does not have.
  void skip() { ++next_index_; }
  // `there`: does the model have it?
  void vector(const char* name, std::int64_t cols, float mean, bool there) {
    if (!there) return skip();
    add({.name = name, .rows = 1, .cols = cols, .used_rows = 1, .init_mean = mean}, false);
  }
  Unit take() { return std::move(unit_); }

 private:
  void add(Parameter parameter, bool is_matrix) {
    const bool frozen = is_frozen(frozen_, fmt::format("{}.{}", unit_.name, parameter.name));
    FlatBuffer& flat = frozen ? unit_.frozen : unit_.trained;
    parameter.offset = flat.elements;
    parameter.index = next_index_++;
    const std::int64_t end = parameter.offset + parameter.elements();
    flat.elements = (end + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
    if (is_matrix) flat.decay_end = flat.elements;
    flat.parameters.push_back(std::move(parameter));
  }

  std::int64_t next_index_;
  std::span<const std::string> frozen_;
  Unit unit_;
};

double kaiming(std::int64_t fan_in) {
  return std::sqrt(2.0 / static_cast<double>(fan_in));
}

Unit root(const model::Shape& shape, std::int64_t seq_len, std::span<const std::string> frozen) {
  const std::int64_t d = shape.d_model;
  UnitBuilder unit("root", 0, frozen);
  unit.matrix("token_table", model::padded_vocab(shape.vocab), d, shape.vocab, kaiming(d));
  if (shape.positions == model::Positions::learned) {
    unit.matrix("positions", seq_len, d, seq_len, kaiming(d));
  } else {
    unit.skip();
  }
  unit.vector("norm.gain", d, 1, true);
  unit.vector("norm.bias", d, 0, shape.biases.norm);
  return unit.take();
}

Unit block(const model::Shape& shape, std::int64_t layer, std::span<const std::string> frozen) {
  const std::int64_t d = shape.d_model;
  const std::int64_t attention = model::attention_width(shape);
  const std::int64_t qkv = model::qkv_width(shape);
  const std::int64_t mlp_in = model::mlp_in_width(shape);
  const double residual = std::sqrt(2.0 * static_cast<double>(shape.n_layers));
  UnitBuilder unit(fmt::format("block.{}", layer), layer + 1, frozen);
  unit.matrix("qkv.weight", qkv, d, qkv, kaiming(d));
  unit.matrix("out.weight", d, attention, d, kaiming(attention) / residual);
  unit.matrix("up.weight", mlp_in, d, mlp_in, kaiming(d));  // swiglu: [gate; up]
  unit.matrix("down.weight", d, shape.ffn, d, kaiming(shape.ffn) / residual);
  unit.vector("norm1.gain", d, 1, true);
  unit.vector("norm1.bias", d, 0, shape.biases.norm);
  unit.vector("qkv.bias", qkv, 0, shape.biases.qkv);
  unit.vector("out.bias", d, 0, shape.biases.out);
  unit.vector("norm2.gain", d, 1, true);
  unit.vector("norm2.bias", d, 0, shape.biases.norm);
  unit.vector("up.bias", mlp_in, 0, shape.biases.mlp);
  unit.vector("down.bias", d, 0, shape.biases.mlp);
  return unit.take();
}

Unit own_head(const model::Shape& shape, std::span<const std::string> frozen) {
  UnitBuilder unit("head", shape.n_layers + 1, frozen);
  unit.matrix("head.weight", model::padded_vocab(shape.vocab), shape.d_model, shape.vocab,
              kaiming(shape.d_model));
  return unit.take();
}

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*')
    return !name.empty() && pattern.front() == name.front() &&
           matches(pattern.substr(1), name.substr(1));
  for (std::size_t skipped = 0; skipped <= name.size(); ++skipped) {
    if (matches(pattern.substr(1), name.substr(skipped))) return true;
  }
  return false;
}

}  // namespace

const Parameter& Unit::parameter(std::string_view wanted) const {
  for (const FlatBuffer* flat : {&trained, &frozen}) {
    for (const Parameter& candidate : flat->parameters) {
      if (candidate.name == wanted) return candidate;
    }
  }
  throw Error(ExitCode::internal, name, fmt::format("has no parameter {}", wanted));
}

std::int64_t unit_count(const model::Shape& shape) {
  return shape.n_layers + (shape.tied ? 1 : 2);
}

std::vector<Unit> units(const model::Shape& shape, std::int64_t seq_len,
                        std::span<const std::string> frozen) {
  std::vector<Unit> result;
  result.reserve(static_cast<std::size_t>(unit_count(shape)));
  result.push_back(root(shape, seq_len, frozen));
  for (std::int64_t layer = 0; layer < shape.n_layers; ++layer)
    result.push_back(block(shape, layer, frozen));
  if (!shape.tied) result.push_back(own_head(shape, frozen));
  return result;
}

std::vector<Unit> units(const Config& config) {
  std::vector<Unit> all = units(config.shape, config.seq_len, config.frozen);
  if (!config.frozen.empty() && config.mixed_precision == MixedPrecision::full) {
    throw Error(ExitCode::unsupported, "frozen", "parameters are kept for compute only under FULL",
                "mixed_precision DEFAULT");
  }
  for (const std::string& pattern : config.frozen) {
    const bool fits = std::ranges::any_of(all, [&](const Unit& unit) {
      return std::ranges::any_of(unit.frozen.parameters, [&](const Parameter& parameter) {
        return matches(pattern, fmt::format("{}.{}", unit.name, parameter.name));
      });
    });
    if (!fits)
      throw Error(ExitCode::unsupported, "frozen", fmt::format("'{}' fits no parameter", pattern));
  }
  return all;
}

bool is_frozen(std::span<const std::string> patterns, std::string_view name) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return matches(pattern, name); });
}

std::int64_t trained_count(const Config& config) {
  std::int64_t count = 0;
  for (const Unit& unit : units(config)) {
    for (const Parameter& parameter : unit.trained.parameters)
      count += parameter.used_rows * parameter.cols;
  }
  return count;
}

}  // namespace tessera::memory
