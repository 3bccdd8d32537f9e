// SPDX-License-Identifier: Apache-2.0
// The shape of a decoder: all that decides which computation one token takes. No YAML here: the
// trainer uses it too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/base/names.h"

namespace tessera::model {

enum class Norm : std::uint8_t { layernorm, rmsnorm };
enum class Positions : std::uint8_t { learned, alibi, rope };
enum class Activation : std::uint8_t { gelu_erf, gelu_tanh, swiglu };

// What a model file may say of any one dimension.
inline constexpr std::int64_t kLargestDimension = std::int64_t{1} << 32;

// Which linear layers and norms add a bias.
struct Biases {
  bool qkv = true;
  bool out = true;
  bool mlp = true;
  bool norm = true;
  bool operator==(const Biases&) const = default;
};

struct Shape {
  std::int64_t d_model = 0;
  std::int64_t n_layers = 0;
  std::int64_t n_heads = 0;     // of queries
  std::int64_t n_kv_heads = 0;  // n_heads: multi-head; fewer: grouped-query
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;    // inner width of the MLP
  std::int64_t vocab = 0;  // the model's own, without the padding that the engine adds in memory
  Norm norm = Norm::layernorm;
  Positions positions = Positions::learned;
  Activation activation = Activation::gelu_erf;
  Biases biases;
  bool tied = true;            // the head is the token table
  double norm_eps = 1e-5;      // added to the variance (layernorm) or the mean square (rmsnorm)
  double rope_theta = 10'000;  // rope only: a pair's angle is position * theta^(-2i / head_dim)
  bool operator==(const Shape&) const = default;
};

// Columns of the packed queries, keys and values; of attention's result; of the MLP's first product
// (gate and up for swiglu).
std::int64_t qkv_width(const Shape& shape);
std::int64_t attention_width(const Shape& shape);
std::int64_t mlp_in_width(const Shape& shape);

// Rows that the engine stores for the vocabulary: the next multiple of 128. Never enters a formula.
std::int64_t padded_vocab(std::int64_t vocab);

// Exact number of parameters, a tied table once. Learned positions have one row per position of
// `seq_len`, so the count depends on it (as the published n_params do).
std::int64_t parameter_count(const Shape& shape, std::int64_t seq_len);

// What makes the shape impossible ("n_heads 12 is not a multiple of n_kv_heads 5"), or nothing.
// Sizes must be positive; a shape with a rope_theta that nothing reads is impossible too, so that
// one computation has one shape.
std::optional<std::string> contradiction(const Shape& shape);

}  // namespace tessera::model

namespace tessera {
template <>
struct Names<model::Norm> {
  static constexpr std::pair<model::Norm, std::string_view> table[] = {
      {model::Norm::layernorm, "layernorm"}, {model::Norm::rmsnorm, "rmsnorm"}};
};
template <>
struct Names<model::Positions> {
  static constexpr std::pair<model::Positions, std::string_view> table[] = {
      {model::Positions::learned, "learned"},
      {model::Positions::alibi, "alibi"},
      {model::Positions::rope, "rope"}};
};
template <>
struct Names<model::Activation> {
  static constexpr std::pair<model::Activation, std::string_view> table[] = {
      {model::Activation::gelu_erf, "gelu_erf"},
      {model::Activation::gelu_tanh, "gelu_tanh"},
      {model::Activation::swiglu, "swiglu"}};
};
}  // namespace tessera
