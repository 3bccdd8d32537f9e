// SPDX-License-Identifier: Apache-2.0
// The parts that a model's parameters are kept in: what is gathered, reduced and updated as one.
//
// A unit's trained parameters lie in one flat buffer, its frozen ones in another: those have no
// master copy, gradient or moments.
//
// Unit 0 is the root: token table (once when the head is tied to it), learned positions, final
// norm. Units 1 to n_layers are the blocks in forward order; a head of its own is the last unit. In
// a flat buffer matrices come first, then vectors, so that weight decay is one offset; each begins
// at a multiple of 256 bytes in any dtype. Pure values: the same for every world size, device and
// precision.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/schedule/config.h"

namespace tessera::memory {

// Weights are [out, in]; vectors have one row.
struct Parameter {
  std::string name;         // within its unit: "qkv.weight"
  std::int64_t offset = 0;  // elements from the begin of the flat buffer
  std::int64_t rows = 0;    // as stored: the token table's are padded_vocab
  std::int64_t cols = 0;
  std::int64_t used_rows = 0;  // the model's own; rows after it are 0 and stay so
  float init_mean = 0;
  float init_stddev = 0;
  std::int64_t index = 0;  // of the parameter in the model: the key of its random numbers
  std::int64_t elements() const { return rows * cols; }
};

struct FlatBuffer {
  std::vector<Parameter> parameters;
  std::int64_t elements = 0;   // gaps included
  std::int64_t decay_end = 0;  // elements before it are matrices
};

struct Unit {
  std::string name;  // "root", "block.0", ...
  FlatBuffer trained;
  FlatBuffer frozen;
  // Finds a parameter in either buffer.
  const Parameter& parameter(std::string_view name) const;  // Error(internal) if there is none
};

// Whether any of its parameters is.
inline bool is_trained(const Unit& unit) {
  return unit.trained.elements > 0;
}

std::int64_t unit_count(const model::Shape& shape);

// The shape's units. Initial values are MPT's: matrices and tables normal with sqrt(2 / columns)
// (Kaiming, fan in), those that end a residual branch divided by sqrt(2 n_layers); biases 0, gains
// 1. A table's row that no token names is 0.
std::vector<Unit> units(const model::Shape& shape, std::int64_t seq_len,
                        std::span<const std::string> frozen = {});
// Error(unsupported) for a pattern that fits no parameter, and for frozen parameters under FULL,
// whose norms and tables are read in f32.
std::vector<Unit> units(const Config& config);

// Whether one of the patterns fits the parameter's full name, "root.token_table".
bool is_frozen(std::span<const std::string> patterns, std::string_view name);

// Parameters that are trained, as parameter_count counts.
std::int64_t trained_count(const Config& config);

}  // namespace tessera::memory
