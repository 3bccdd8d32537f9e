// SPDX-License-Identifier: Apache-2.0
// Numbers as tables show them.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::collect {

// Three significant digits below 100, whole above: "0.73", "41.6", "251". Never in exponents;
// what would round to zero keeps its first three digits ("0.000123").
std::string three_digits(double value);

// Two places: "46.44".
std::string two_places(double value);

// Parameters as people say them, three digits: "6.66b", "125m", "2.16m", "960".
std::string short_count(std::int64_t count);

}  // namespace tessera::collect
