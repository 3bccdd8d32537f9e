#include "trainer/launch/siphash.h"

#include <sodium/crypto_shorthash_siphash24.h>

namespace tessera::trainer {

std::uint64_t siphash(const SipKey& key, std::string_view message) {
  static_assert(sizeof(SipKey) == crypto_shorthash_siphash24_KEYBYTES);
  std::array<std::uint8_t, crypto_shorthash_siphash24_BYTES> hash{};
  crypto_shorthash_siphash24(hash.data(), reinterpret_cast<const std::uint8_t*>(message.data()),
                             message.size(), key.data());
  std::uint64_t word = 0;
  for (std::size_t i = hash.size(); i-- > 0;) word = word << 8 | hash[i];
  return word;
}

}  // namespace tessera::trainer
