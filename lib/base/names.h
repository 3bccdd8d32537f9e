// SPDX-License-Identifier: Apache-2.0
// Enumerations and their names: one table per enumeration, used by YAML, JSON, flags and tables
// alike.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// Specialised beside each enumeration, with one member:
//   static constexpr std::pair<E, std::string_view> table[] = {{E::value, "name"}, ...};
template <class E>
struct Names;

template <class E>
constexpr std::string_view to_text(E value) {
  for (const auto& [candidate, name] : Names<E>::table) {
    if (candidate == value) return name;
  }
  return "?";
}

template <class E>
constexpr std::optional<E> from_text(std::string_view text) {
  for (const auto& [candidate, name] : Names<E>::table) {
    if (name == text) return candidate;
  }
  return std::nullopt;
}

template <class E>
std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names;
  for (const auto& [candidate, name] : Names<E>::table) names.push_back(name);
  return names;
}

}  // namespace tessera
