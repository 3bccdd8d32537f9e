// SPDX-License-Identifier: Apache-2.0
#include "lib/point/told_settings.h"

namespace tessera::sweep {

ToldSettings told_settings(const Point& point) {
  static const Point usual;
  ToldSettings told;
  ToldSettings::each(told, [&]<class T>(const Field<T>& field, auto& value) {
    if (field.logged != Logged::as_asked) return;
    const T& asked = field.in(point);
    if constexpr (std::is_enum_v<T>) {
      value = to_text(asked);
    } else {
      constexpr bool is_number = std::is_integral_v<T> && !std::is_same_v<T, bool>;
      if (!is_number || asked != T{} || field.in(usual) != T{}) value = asked;
    }
  });
  return told;
}

}  // namespace tessera::sweep
