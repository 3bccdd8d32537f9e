// SPDX-License-Identifier: Apache-2.0
// A point (fields.h) as JSON, of which its identity is a hash (identity.h).
#pragma once

#include <string>

#include "lib/point/fields.h"

namespace tessera::sweep {

// All fields but those of Written::if_set that equal their default (and so norm_eps and rope_theta
// of the model), keys sorted, no spaces: what specification and header record hold.
std::string point_json(const Point& point);

// The hashed form: as point_json without the fields that equal their default; `model` likewise
// (n_kv_heads = n_heads, head_dim = d_model / n_heads and the enumerations' first values are its
// defaults).
std::string canonical_json(const Point& point);

// Reads either form. Error(input) on unknown keys, wrong types or impossible values.
Point parse_point(const Value& value);

}  // namespace tessera::sweep
