#include "trainer/launch/siphash.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

using namespace tessera::trainer;

// Key 00 01 .. 0f, message 00 01 .. of the given length. 15 bytes: appendix A of the paper
// ("SipHash: a fast short-input PRF", 2012); the others: the vectors that its authors publish with
// the reference implementation, read as little-endian words.
TEST_CASE("SipHash-2-4 gives the published hashes") {
  SipKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(i);
  const std::pair<std::size_t, std::uint64_t> vectors[] = {
      {0, 0x726fdb47dd0e0e31},  {1, 0x74f839c593dc67fd},  {2, 0x0d6c8009d9a94f5a},
      {3, 0x85676696d7fb7e2d},  {7, 0xab0200f58b01d137},  {8, 0x93f5f5799a932462},
      {15, 0xa129ca6149be45e5}, {16, 0x3f2acc7f57c29bdb}, {63, 0x958a324ceb064572}};
  for (const auto& [length, hash] : vectors) {
    CAPTURE(length);
    std::string message;
    for (std::size_t i = 0; i < length; ++i) message += static_cast<char>(i);
    CHECK(siphash(key, message) == hash);
  }
}

TEST_CASE("another key or another byte gives another hash") {
  const SipKey zeros{};
  SipKey one{};
  one[15] = 1;
  CHECK(siphash(zeros, "rank 3") != siphash(one, "rank 3"));
  CHECK(siphash(zeros, "rank 3") != siphash(zeros, "rank 4"));
  CHECK(siphash(zeros, std::string(256, '\0')) != siphash(zeros, ""));
}
