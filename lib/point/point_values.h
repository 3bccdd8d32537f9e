// SPDX-License-Identifier: Apache-2.0
// A point in the words of flags and sweep files.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/point/fields.h"

namespace tessera::sweep {

// As it would be written: "8", "true", "amp_bf16", "auto".
template <class T>
std::string value_text(const Field<T>& field, const T& value) {
  static_assert(is_setting<T>);
  if constexpr (std::is_enum_v<T>) {
    return std::string(to_text(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else {
    return value == 0 && !field.zero.empty() ? std::string(field.zero) : std::to_string(value);
  }
}

// What may be written, for help: "true, false", "1 to 1024"; a text's help says it itself.
template <class T>
std::string choices_text(const Field<T>& field) {
  static_assert(is_setting<T>);
  if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", fmt::join(all_names<T>(), ", "));
  } else if constexpr (std::is_same_v<T, bool>) {
    return "false, true";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "text";
  } else {
    const auto [lowest, highest] = field.range;
    std::string text = highest == kLargestInteger ? fmt::format("from {}", lowest)
                                                  : fmt::format("{} to {}", lowest, highest);
    if (!field.zero.empty()) text += fmt::format(", {}", field.zero);
    return text;
  }
}

// What would be written to get this point of its model: the global batch, what every point says
// (Written::always), and the rest where it is not the default. Sorted by key.
std::vector<std::pair<std::string, std::string>> values_of(const Point& point);

// Sets the field of this key to a text of values_of. A key that is no field's changes nothing, nor
// does a word that is not known; a number that cannot be read is 0.
void set_value(Point& point, std::string_view key, std::string_view text);

}  // namespace tessera::sweep
