// SPDX-License-Identifier: Apache-2.0
// Settings as somebody tells them, a log or a point, each perhaps not at all.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "lib/point/fields.h"

namespace tessera::sweep {

// A choice is told by its word: a newer trainer's may be one that is not known here.
template <class T>
using Told = std::conditional_t<std::is_enum_v<T>, std::string,
                                std::conditional_t<is_setting<T>, T, std::monostate>>;

class ToldSettings {
 public:
  // settings.get<&Point::seq_len>(): an optional integer, boolean or text.
  template <auto member>
  auto& get() {
    return std::get<place_of(member)>(values_);
  }
  template <auto member>
  const auto& get() const {
    return std::get<place_of(member)>(values_);
  }

  // visit(field, value) for each setting that a log tells, in the order of fields.h; `settings` may
  // be const.
  template <class Settings, class Visit>
  static void each(Settings& settings, Visit visit) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto one = [&]<class T>(const Field<T>& field, auto& value) {
        if constexpr (is_setting<T>) {
          if (field.logged != Logged::no) visit(field, value);
        }
      };
      (one(std::get<I>(kFields), std::get<I>(settings.values_)), ...);
    }(std::make_index_sequence<kFieldCount>());
  }

  // Takes over from `other` what is not told here.
  void complete(const ToldSettings& other) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto one = [](auto& here, const auto& there) {
        if (!here) here = there;
      };
      (one(std::get<I>(values_), std::get<I>(other.values_)), ...);
    }(std::make_index_sequence<kFieldCount>());
  }

  bool operator==(const ToldSettings&) const = default;

 private:
  template <class... T>
  static auto optionals(const std::tuple<Field<T>...>&) -> std::tuple<std::optional<Told<T>>...>;
  decltype(optionals(kFields)) values_;
};

// What the log tells of a run that does as the point asks: no setting that the trainer decides, nor
// a number that is 0 by default and says nothing then (an automatic microbatch).
ToldSettings told_settings(const Point& point);

}  // namespace tessera::sweep
