#include "lib/memory/units.h"

#include <fmt/format.h>

#include <cmath>

#include "lib/base/error.h"

namespace tessera::memory {

namespace {

// Places for parameters of one unit, so that an index does not depend on which biases a model has.
constexpr std::int64_t kIndexesPerUnit = 64;

class UnitBuilder {
 public:
  UnitBuilder(std::string name, std::int64_t number)
      : next_index_(number * kIndexesPerUnit), unit_{std::move(name), {}} {}

  void matrix(const char* name, std::int64_t rows, std::int64_t cols, std::int64_t used_rows,
              double stddev) {
    add({.name = name,
         .rows = rows,
         .cols = cols,
         .used_rows = used_rows,
         .init_stddev = static_cast<float>(stddev)});
    unit_.trained.decay_end = unit_.trained.elements;
  }
  // Takes the index of a parameter that the model does not have.
  void skip() { ++next_index_; }
  // `there`: does the model have it?
  void vector(const char* name, std::int64_t cols, float mean, bool there) {
    if (!there) return skip();
    add({.name = name, .rows = 1, .cols = cols, .used_rows = 1, .init_mean = mean});
  }
  Unit take() { return std::move(unit_); }

 private:
  void add(Parameter parameter) {
    FlatBuffer& flat = unit_.trained;
    parameter.offset = flat.elements;
    parameter.index = next_index_++;
    const std::int64_t end = parameter.offset + parameter.elements();
    flat.elements = (end + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
    flat.parameters.push_back(std::move(parameter));
  }

  std::int64_t next_index_;
  Unit unit_;
};

double kaiming(std::int64_t fan_in) {
  return std::sqrt(2.0 / static_cast<double>(fan_in));
}

Unit root(const model::Shape& shape, std::int64_t seq_len) {
  const std::int64_t d = shape.d_model;
  UnitBuilder unit("root", 0);
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

Unit block(const model::Shape& shape, std::int64_t layer) {
  const std::int64_t d = shape.d_model;
  const std::int64_t attention = model::attention_width(shape);
  const std::int64_t qkv = model::qkv_width(shape);
  const std::int64_t mlp_in = model::mlp_in_width(shape);
  const double residual = std::sqrt(2.0 * static_cast<double>(shape.n_layers));
  UnitBuilder unit(fmt::format("block.{}", layer), layer + 1);
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

Unit own_head(const model::Shape& shape) {
  UnitBuilder unit("head", shape.n_layers + 1);
  unit.matrix("head.weight", model::padded_vocab(shape.vocab), shape.d_model, shape.vocab,
              kaiming(shape.d_model));
  return unit.take();
}

}  // namespace

const Parameter& Unit::parameter(std::string_view wanted) const {
  for (const Parameter& candidate : trained.parameters) {
    if (candidate.name == wanted) return candidate;
  }
  throw Error(ExitCode::internal, name, fmt::format("has no parameter {}", wanted));
}

std::int64_t unit_count(const model::Shape& shape) {
  return shape.n_layers + (shape.tied ? 1 : 2);
}

std::vector<Unit> units(const model::Shape& shape, std::int64_t seq_len) {
  std::vector<Unit> result;
  result.reserve(static_cast<std::size_t>(unit_count(shape)));
  result.push_back(root(shape, seq_len));
  for (std::int64_t layer = 0; layer < shape.n_layers; ++layer)
    result.push_back(block(shape, layer));
  if (!shape.tied) result.push_back(own_head(shape));
  return result;
}

}  // namespace tessera::memory
