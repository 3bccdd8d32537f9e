// SPDX-License-Identifier: Apache-2.0
// What is known of a peak that was measured here, beside its figure.
#pragma once

#include <cstdint>

#include "lib/base/names.h"

namespace tessera::hardware {

// What made a measured peak too low.
enum class Disturbance : std::uint8_t {
  other_work,  // took CPU time from the threads that measured
};

}  // namespace tessera::hardware

namespace tessera {
template <>
struct Names<hardware::Disturbance> {
  using enum hardware::Disturbance;
  static constexpr std::pair<hardware::Disturbance, std::string_view> table[] = {
      {other_work, "other-work"}};
};
}  // namespace tessera
