// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/fingerprint.h"

#include <bit>
#include <type_traits>

#include "trainer/device/fields.h"

namespace tessera::trainer {
namespace {

// Multiplying by an odd constant and xor with a shift are both invertible, so each state depends on
// all words before. Two states with different constants make an accidental match practically
// impossible.
std::uint64_t mix(std::uint64_t state, std::uint64_t word, std::uint64_t factor) {
  state = (state ^ word) * factor;
  return state ^ (state >> 29);
}

class Mixer {
 public:
  template <class... Fields>
  void operator()(const Fields&... fields) {
    (add(fields), ...);
  }
  Fingerprint result() const { return result_; }

 private:
  template <class T>
  void add(const T& field) {
    if constexpr (std::is_pointer_v<T>) {
      word(reinterpret_cast<std::uintptr_t>(field));
    } else if constexpr (std::is_same_v<T, float>) {
      word(std::bit_cast<std::uint32_t>(field));
    } else if constexpr (std::is_same_v<T, double>) {
      word(std::bit_cast<std::uint64_t>(field));
    } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
      word(static_cast<std::uint64_t>(field));
    } else {
      visit_fields(field, *this);
    }
  }
  void word(std::uint64_t value) {
    result_.first = mix(result_.first, value, 0x9E3779B97F4A7C15U);
    result_.second = mix(result_.second, value, 0xC2B2AE3D27D4EB4FU);
  }

  Fingerprint result_{0x243F6A8885A308D3U, 0x13198A2E03707344U};  // digits of pi
};

}  // namespace

Fingerprint fingerprint(const Op& op) {
  Mixer mixer;
  mixer(op.index());
  std::visit([&mixer](const auto& o) { visit_fields(o, mixer); }, op);
  return mixer.result();
}

}  // namespace tessera::trainer
