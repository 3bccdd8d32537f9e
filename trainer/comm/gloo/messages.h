// SPDX-License-Identifier: Apache-2.0
// Messages between ranks over Gloo beside tensors: in the store before they are connected, and when
// they enter a collective.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer/comm/gloo/options.h"

namespace tessera::trainer::comm {

// The last words of a rank, in the store and as its reason.
inline constexpr const char* kAborted = "has aborted";
inline constexpr const char* kEnded = "has ended";

// A rank's message when it enters its n-th collective, or its last words instead.
struct Message {
  enum class Kind : std::int32_t { call, ended, failed };
  static constexpr std::size_t kTextBytes = 112;

  Kind kind = Kind::call;
  std::int32_t collective = 0;
  std::int32_t dtype = 0;
  std::int32_t origin = 0;  // failed: the rank that failed first
  std::int64_t elements = 0;
  std::uint64_t number = 0;                                   // n
  std::array<char, kTextBytes> text{};                        // failed: why, ends with 0
  alignas(double) std::array<std::byte, kSmallBytes> data{};  // of a small all-reduce
};
static_assert(std::is_trivially_copyable_v<Message>);

// Returns the value under which a rank tells the others in prepare what they need: the sizes of its
// memory, then its addresses.
std::string prepare_value(std::span<const std::span<std::byte>> registered,
                          const std::string& addresses);

// Parses the sizes, as spans without memory.
std::vector<std::span<std::byte>> sizes_in(const std::string& value);

}  // namespace tessera::trainer::comm
