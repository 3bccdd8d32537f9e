// SPDX-License-Identifier: Apache-2.0
// Members of a JSON record that may be missing, or of another type in a log that somebody else
// wrote: such a member leaves the target as it is.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lib/runlog/record.h"

namespace tessera::runlog {

// T: std::string, bool, double, an integer, or a map of texts by name.
template <class T>
void take(const Json& object, std::string_view key, std::optional<T>& target) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  if constexpr (std::is_same_v<T, std::string>) {
    if (found->is_string()) target = found->template get<std::string>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (found->is_boolean()) target = found->template get<bool>();
  } else if constexpr (std::is_same_v<T, double>) {
    if (found->is_number()) target = found->template get<double>();
  } else if constexpr (std::is_integral_v<T>) {
    if (found->is_number_integer()) target = found->template get<T>();
  } else {
    if (!found->is_object()) return;
    T texts;
    for (const auto& [name, value] : found->items()) {
      if (value.is_string()) texts[name] = value.template get<std::string>();
    }
    target = std::move(texts);
  }
}

template <class T>
void take(const Json& object, std::string_view key, T& target) {
  std::optional<T> value;
  take(object, key, value);
  if (value) target = std::move(*value);
}

template <class T>
void put(Json& object, std::string_view key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

}  // namespace tessera::runlog
