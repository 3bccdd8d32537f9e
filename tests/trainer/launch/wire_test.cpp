// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/wire.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::wire;

TEST_CASE("tokens are random, and go to hexadecimal digits and back") {
  std::set<std::string> texts;
  for (int i = 0; i < 100; ++i) {
    const Token token = random_token();
    const std::string text = to_hex(token);
    CHECK(text.size() == 32);
    CHECK(token_of(text) == token);
    texts.insert(text);
  }
  CHECK(texts.size() == 100);
  CHECK(token_of("000102030405060708090a0b0c0d0e0f") ==
        Token{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  for (const char* bad :
       {"", "00", "000102030405060708090a0b0c0d0e0", "000102030405060708090A0B0C0D0E0F",
        "000102030405060708090a0b0c0d0e0g", "000102030405060708090a0b0c0d0e0f0"}) {
    CAPTURE(bad);
    CHECK_FALSE(token_of(bad).has_value());
  }
  // SipHash-2-4 of nothing under a key of zeros is 0x1e924b9d737700d7.
  CHECK(to_hex(derived_token("")).starts_with("d70077739d4b921e"));
  CHECK(derived_token("a.0") == derived_token("a.0"));
  CHECK(derived_token("a.0") != derived_token("a.1"));
}

TEST_CASE("both sides of a greeting prove that they know the token") {
  const Token token = random_token();
  const Token other = random_token();
  const std::string hello =
      hello_bytes({.rank = 3, .ranks = 8, .node = 1, .nodes = 2, .host = "gpu-12"});
  CHECK(hello.size() == kHelloBytes);
  const auto parsed = parse_hello(hello);
  REQUIRE(parsed.has_value());
  CHECK(parsed->rank == 3);
  CHECK(parsed->ranks == 8);
  CHECK(parsed->node == 1);
  CHECK(parsed->nodes == 2);
  CHECK(parsed->host == "gpu-12");

  const std::string answer = answer_bytes(token, hello);
  CHECK(answer.size() == kAnswerBytes);
  CHECK(answer_holds(token, hello, answer));
  CHECK_FALSE(answer_holds(other, hello, answer));
  // An answer to another hello, which an eavesdropper could repeat.
  CHECK_FALSE(answer_holds(token, hello_bytes(*parsed), answer));

  const std::string proof = proof_bytes(token, hello, answer);
  CHECK(proof.size() == kProofBytes);
  CHECK(proof_holds(token, hello, answer, proof));
  CHECK_FALSE(proof_holds(token, hello, answer, proof_bytes(other, hello, answer)));
  CHECK_FALSE(proof_holds(token, hello, answer_bytes(token, hello), proof));
  CHECK_FALSE(proof_holds(token, hello, answer, proof.substr(1)));
  // Rank 0's own answer, sent back, proves nothing.
  CHECK_FALSE(proof_holds(token, hello, answer, answer.substr(kAnswerBytes - kProofBytes)));
  // A proof that was overheard does not let anyone claim another rank.
  std::string changed = hello;
  changed[12] = 4;
  CHECK(parse_hello(changed)->rank == 4);
  CHECK_FALSE(proof_holds(token, changed, answer, proof));
}

TEST_CASE("a hello of another version, or of a rank that cannot be, is none") {
  const std::string good = hello_bytes({.rank = 1, .ranks = 2, .node = 0, .nodes = 1, .host = "h"});
  const auto with = [&](std::size_t at, char byte) {
    std::string bytes = good;
    bytes[at] = byte;
    return parse_hello(bytes);
  };
  CHECK(parse_hello(good).has_value());
  CHECK_FALSE(parse_hello(good.substr(1)).has_value());
  CHECK_FALSE(with(0, 'X').has_value());
  CHECK_FALSE(with(8, 2).has_value());                         // version
  CHECK_FALSE(with(12, 2).has_value());                        // rank 2 of 2
  CHECK_FALSE(with(15, static_cast<char>(0x80)).has_value());  // rank 2^31 + 1
  CHECK_FALSE(with(20, 1).has_value());                        // node 1 of 1
}

TEST_CASE("frames come out whole, however they are cut") {
  std::vector<Frame> sent{{.kind = Kind::get, .id = 7, .key = "address.3"},
                          {.kind = Kind::leave},
                          {.kind = Kind::set,
                           .id = 0xfffffffe,
                           .key = std::string(kMostKeyBytes, 'k'),
                           .value = std::string(kMostValueBytes, '\0')},
                          {.kind = Kind::lost, .id = 2, .key = "", .value = "why"}};
  std::string bytes;
  for (const Frame& frame : sent) bytes += frame_bytes(frame);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    CAPTURE(piece);
    FrameReader reader;
    std::vector<Frame> got;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(std::string_view(bytes).substr(at, piece));
      while (const auto frame = reader.next()) got.push_back(*frame);
    }
    REQUIRE(got.size() == sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      CHECK(got[i].kind == sent[i].kind);
      CHECK(got[i].id == sent[i].id);
      CHECK(got[i].key == sent[i].key);
      CHECK(got[i].value == sent[i].value);
    }
    CHECK_FALSE(reader.is_broken());
  }
}

TEST_CASE("what is no frame breaks the reader before it is held in memory") {
  const auto is_broken = [](std::string_view bytes) {
    FrameReader reader;
    reader.add(bytes);
    while (reader.next()) {
    }
    return reader.is_broken();
  };
  CHECK(is_broken("GET / HTTP/1.1\r\n"));
  CHECK(is_broken(std::string("\xff\xff\xff\xff", 4)));
  CHECK(is_broken(std::string("\0\0\0\0", 4)));                       // shorter than any
  CHECK(is_broken(std::string("\x07\0\0\0\x01\0\0\0\0\x05\0", 11)));  // a key longer than the frame
  CHECK_FALSE(is_broken(std::string("\x07\0\0\0\x05\0\0\0\0\0\0", 11)));
}

TEST_CASE("keys and values beyond what a frame takes are refused") {
  check_sizes(std::string(kMostKeyBytes, 'k'), std::string(kMostValueBytes, 'v'));
  CHECK_THROWS_AS(check_sizes(std::string(kMostKeyBytes + 1, 'k'), ""), Error);
  CHECK_THROWS_AS(check_sizes("k", std::string(kMostValueBytes + 1, 'v')), Error);
}
