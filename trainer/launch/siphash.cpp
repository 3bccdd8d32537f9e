#include "trainer/launch/siphash.h"

#include <bit>
#include <cstddef>

namespace tessera::trainer {

namespace {

// The four words of its state; one round is additions, rotations and exclusive ors of them.
struct State {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }

  void take(std::uint64_t word) {
    constexpr int kRounds = 2;
    v3 ^= word;
    for (int i = 0; i < kRounds; ++i) round();
    v0 ^= word;
  }
};

// Little-endian; up to 8 bytes.
template <class Bytes>
std::uint64_t word_of(const Bytes& bytes, std::size_t begin, std::size_t count) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; ++i)
    word |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(bytes[begin + i])) << (8 * i);
  return word;
}

}  // namespace

std::uint64_t siphash(const SipKey& key, std::string_view message) {
  const std::uint64_t k0 = word_of(key, 0, 8);
  const std::uint64_t k1 = word_of(key, 8, 8);
  // The constants are the ASCII letters of "somepseudorandomlygeneratedbytes".
  State state{.v0 = k0 ^ 0x736f6d6570736575,
              .v1 = k1 ^ 0x646f72616e646f6d,
              .v2 = k0 ^ 0x6c7967656e657261,
              .v3 = k1 ^ 0x7465646279746573};
  std::size_t at = 0;
  for (; message.size() - at >= 8; at += 8) state.take(word_of(message, at, 8));
  // The last word ends with the length, modulo 256.
  state.take(word_of(message, at, message.size() - at) | static_cast<std::uint64_t>(message.size())
                                                             << 56);
  constexpr int kFinalRounds = 4;
  state.v2 ^= 0xff;
  for (int i = 0; i < kFinalRounds; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace tessera::trainer
