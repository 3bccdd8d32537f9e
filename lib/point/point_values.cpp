// SPDX-License-Identifier: Apache-2.0
#include "lib/point/point_values.h"

#include <charconv>
#include <map>

namespace tessera::sweep {

namespace {

// One device shards nothing, whatever was asked for.
Point usual_beside(const Point& point) {
  Point usual;
  if (point.gpus == 1) usual.sharding_strategy = Sharding::no_shard;
  return usual;
}

template <class T>
void read_text(std::string_view text, T& target) {
  if constexpr (std::is_enum_v<T>) {
    target = from_text<T>(text).value_or(target);
  } else if constexpr (std::is_same_v<T, bool>) {
    target = text == "true";
  } else if constexpr (std::is_same_v<T, std::string>) {
    target = text;
  } else {
    T number = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
    target = fault == std::errc() && end == text.data() + text.size() ? number : 0;
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> values_of(const Point& point) {
  const Point usual = usual_beside(point);
  std::map<std::string, std::string> values{{"global_batch", std::to_string(point.global_batch)}};
  each_axis_field([&](const auto& field) {
    if (field.written == Written::always || field.in(point) != field.in(usual))
      values[std::string(field.key)] = value_text(field, field.in(point));
  });
  for (const auto& [variable, value] : point.env) values["env." + variable] = value;
  return {values.begin(), values.end()};
}

void set_value(Point& point, std::string_view key, std::string_view text) {
  each_setting([&](const auto& field) {
    if (field.key == key) read_text(text, field.in(point));
  });
}

}  // namespace tessera::sweep
