// SPDX-License-Identifier: Apache-2.0
#include "lib/model/shape.h"

#include <fmt/format.h>

#include "lib/base/numbers.h"

namespace tessera::model {

namespace {

constexpr double kMostParameters = 1e15;

// At least the number of parameters but for learned positions, where the exact count could
// overflow.
double largest_count(const Shape& shape) {
  const double width = 2 * (real(shape.n_heads) + real(shape.n_kv_heads)) * real(shape.head_dim) +
                       3 * real(shape.ffn);
  return real(shape.d_model) * (real(shape.n_layers) * width + 2 * real(shape.vocab));
}

}  // namespace

std::int64_t padded_vocab(std::int64_t vocab) {
  return (vocab + 127) / 128 * 128;
}

std::int64_t qkv_width(const Shape& shape) {
  return (shape.n_heads + 2 * shape.n_kv_heads) * shape.head_dim;
}

std::int64_t attention_width(const Shape& shape) {
  return shape.n_heads * shape.head_dim;
}

std::int64_t mlp_in_width(const Shape& shape) {
  return shape.activation == Activation::swiglu ? 2 * shape.ffn : shape.ffn;
}

std::int64_t parameter_count(const Shape& shape, std::int64_t seq_len) {
  const std::int64_t d = shape.d_model;
  const std::int64_t qkv = qkv_width(shape);
  const std::int64_t mlp_in = mlp_in_width(shape);
  const std::int64_t norm = shape.norm == Norm::layernorm && shape.biases.norm ? 2 * d : d;

  std::int64_t block = 2 * norm + qkv * d + d * attention_width(shape) + mlp_in * d + d * shape.ffn;
  if (shape.biases.qkv) block += qkv;
  if (shape.biases.out) block += d;
  if (shape.biases.mlp) block += mlp_in + d;

  std::int64_t total = shape.vocab * d + shape.n_layers * block + norm;
  if (shape.positions == Positions::learned) total += seq_len * d;
  if (!shape.tied) total += shape.vocab * d;
  return total;
}

std::optional<std::string> contradiction(const Shape& shape) {
  if (shape.n_kv_heads > shape.n_heads || shape.n_heads % shape.n_kv_heads != 0) {
    return fmt::format("n_heads {} is not a multiple of n_kv_heads {}", shape.n_heads,
                       shape.n_kv_heads);
  }
  if (shape.positions == Positions::rope && shape.head_dim % 2 != 0) {
    return fmt::format("rope needs an even head_dim, not {}", shape.head_dim);
  }
  if (shape.norm == Norm::rmsnorm && shape.biases.norm)
    return "rmsnorm has no bias; set biases.norm to false";
  if (!(shape.norm_eps > 0 && shape.norm_eps < 1))
    return fmt::format("norm_eps {} is not between 0 and 1", shape.norm_eps);
  if (!(shape.rope_theta > 1 && shape.rope_theta <= 1e12))
    return fmt::format("rope_theta {} is not between 1 and 1e12", shape.rope_theta);
  if (shape.positions != Positions::rope && shape.rope_theta != Shape{}.rope_theta) {
    return fmt::format("rope_theta {} in a model whose positions are {}; leave it out",
                       shape.rope_theta, to_text(shape.positions));
  }
  if (largest_count(shape) > kMostParameters) {
    return fmt::format("sizes that give about {:.0e} parameters; at most {:.0e}",
                       largest_count(shape), kMostParameters);
  }
  return std::nullopt;
}

}  // namespace tessera::model
