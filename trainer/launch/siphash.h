// SipHash-2-4, a keyed hash for short messages (Aumasson and Bernstein, 2012): without the key
// nobody can compute or guess the hash of a message.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera::trainer {

using SipKey = std::array<std::uint8_t, 16>;

// The hash as a little-endian word.
std::uint64_t siphash(const SipKey& key, std::string_view message);

}  // namespace tessera::trainer
