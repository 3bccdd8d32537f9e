// SPDX-License-Identifier: Apache-2.0
#include "lib/base/crc32.h"

#include <doctest/doctest.h>

#include "lib/base/hash.h"

using namespace tessera;

// The check value of CRC-32/ISO-HDLC and the examples of FIPS 180.
TEST_CASE("CRC-32 and SHA-256 give the published values") {
  CHECK(crc32("123456789") == 0xCBF43926U);
  CHECK(crc32("") == 0);
  CHECK(crc32("56789", crc32("1234")) == 0xCBF43926U);
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("a seal holds for the whole line only") {
  const std::string line = seal(R"({"tessera":1,"t":"step","loss":10.412})");
  CHECK(line.starts_with(R"({"tessera":1,"t":"step","loss":10.412,"crc":")"));
  CHECK(seal_holds(line));
  for (std::size_t length = 0; length < line.size(); ++length)
    CHECK_FALSE(seal_holds(line.substr(0, length)));
  CHECK_FALSE(seal_holds(line + line));
  CHECK_FALSE(seal_holds(line + " "));
  for (std::size_t i = 0; i < line.size(); ++i) {
    std::string changed = line;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CAPTURE(changed);
    CHECK_FALSE(seal_holds(changed));
  }
}
