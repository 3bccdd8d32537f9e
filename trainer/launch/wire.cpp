// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/wire.h"

#include <fmt/format.h>
#include <sodium/crypto_shorthash_siphash24.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

#include "lib/base/error.h"

namespace tessera::trainer::wire {

namespace {

// Lengths of the greeting's parts. Hello: magic, version, rank, ranks, node, nodes, zero, host,
// nonce. Answer: magic, nonce, hash.
constexpr std::string_view kHelloMagic = "TESSMEET";
constexpr std::string_view kAnswerMagic = "TESSHERE";
static_assert(kHelloMagic.size() == kMagicBytes && kAnswerMagic.size() == kMagicBytes);
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kNonceBytes = 16;
constexpr std::size_t kHostBytes = 64;
constexpr std::size_t kHelloHostAt = kMagicBytes + 6 * 4;
static_assert(kHelloHostAt + kHostBytes + kNonceBytes == kHelloBytes);
static_assert(kMagicBytes + kNonceBytes + 8 == kAnswerBytes);
constexpr std::size_t kFrameHead = 4;           // the length of what follows
constexpr std::size_t kFrameFixed = 1 + 4 + 2;  // kind, id, length of the key

void fill_random(std::span<std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(ExitCode::failed, "getrandom", std::generic_category().message(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

// Integers are little-endian on every machine.
template <class Integer>
void put(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xFFU);
}

template <class Integer>
Integer take(std::string_view bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i)
    value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(bytes[at + i])) << (8 * i);
  return static_cast<Integer>(value);
}

void put_nonce(std::string& out) {
  std::array<std::uint8_t, kNonceBytes> nonce{};
  fill_random(nonce);
  for (const std::uint8_t byte : nonce) out += static_cast<char>(byte);
}

// Compares in constant time: a difference takes as long to find wherever it is.
bool is_same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |=
        static_cast<unsigned>(static_cast<std::uint8_t>(a[i]) ^ static_cast<std::uint8_t>(b[i]));
  return difference == 0;
}

bool begins(std::string_view whole, std::string_view begin) {
  const std::size_t count = std::min(whole.size(), begin.size());
  return whole.substr(0, count) == begin.substr(0, count);
}

// Without the key nobody can compute or guess the hash of a message.
std::string hash_of(const Token& key, const std::string& message) {
  static_assert(sizeof(Token) == crypto_shorthash_siphash24_KEYBYTES);
  std::string hash(crypto_shorthash_siphash24_BYTES, '\0');
  crypto_shorthash_siphash24(reinterpret_cast<std::uint8_t*>(hash.data()),
                             reinterpret_cast<const std::uint8_t*>(message.data()), message.size(),
                             key.data());
  return hash;
}

std::string keyed(const Token& token, std::string_view label, std::string_view first,
                  std::string_view second) {
  return hash_of(token, std::string(label) + std::string(first) + std::string(second));
}

}  // namespace

Token random_token() {
  Token token{};
  fill_random(token);
  return token;
}

std::string to_hex(const Token& token) {
  std::string text;
  for (const std::uint8_t byte : token) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<Token> token_of(std::string_view hex) {
  Token token{};
  if (hex.size() != 2 * token.size()) return std::nullopt;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const std::size_t digit = kDigits.find(hex[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    token[i / 2] = static_cast<std::uint8_t>(token[i / 2] << 4 | digit);
  }
  return token;
}

// SipHash gives 64 bits, so the token is made of two hashes with different keys.
Token derived_token(std::string_view text) {
  Token token{};
  for (const std::uint8_t half : {0, 1}) {
    const std::string hash = hash_of({half}, std::string(text));
    std::ranges::copy(hash, token.begin() + half * static_cast<int>(hash.size()));
  }
  return token;
}

std::string hello_bytes(const Hello& hello) {
  std::string out(kHelloMagic);
  put(out, kVersion);
  for (const int number : {hello.rank, hello.ranks, hello.node, hello.nodes})
    put(out, static_cast<std::uint32_t>(number));
  put(out, std::uint32_t{0});
  out += hello.host.substr(0, kHostBytes);
  out.resize(kHelloHostAt + kHostBytes);
  put_nonce(out);
  return out;
}

std::string answer_bytes(const Token& token, std::string_view hello) {
  std::string out(kAnswerMagic);
  put_nonce(out);
  return out + keyed(token, "answer", hello, out);
}

std::string proof_bytes(const Token& token, std::string_view hello, std::string_view answer) {
  return keyed(token, "proof", hello, answer);
}

bool may_be_hello(std::string_view begin) {
  return begins(kHelloMagic, begin);
}

bool may_be_answer(std::string_view begin) {
  return begins(kAnswerMagic, begin);
}

bool answer_holds(const Token& token, std::string_view hello, std::string_view answer) {
  // The hash covers the hello too, so an answer to another hello does not hold.
  if (answer.size() != kAnswerBytes || !may_be_answer(answer)) return false;
  const std::string_view said = answer.substr(0, kMagicBytes + kNonceBytes);
  return is_same(answer.substr(said.size()), keyed(token, "answer", hello, said));
}

bool proof_holds(const Token& token, std::string_view hello, std::string_view answer,
                 std::string_view proof) {
  return is_same(proof, proof_bytes(token, hello, answer));
}

std::optional<Hello> parse_hello(std::string_view bytes) {
  if (bytes.size() != kHelloBytes || !may_be_hello(bytes)) return std::nullopt;
  if (take<std::uint32_t>(bytes, kMagicBytes) != kVersion) return std::nullopt;
  const auto number = [&](std::size_t index) {
    return static_cast<std::int64_t>(take<std::uint32_t>(bytes, kMagicBytes + 4 * (1 + index)));
  };
  // Bounds what a stranger can claim before it has proved anything.
  constexpr std::int64_t kMost = 1 << 20;
  const std::int64_t rank = number(0), ranks = number(1), node = number(2), nodes = number(3);
  if (ranks > kMost || rank >= ranks || nodes > kMost || node >= nodes) return std::nullopt;
  std::string_view host = bytes.substr(kHelloHostAt, kHostBytes);
  host = host.substr(0, host.find('\0'));
  return Hello{.rank = static_cast<int>(rank),
               .ranks = static_cast<int>(ranks),
               .node = static_cast<int>(node),
               .nodes = static_cast<int>(nodes),
               .host = std::string(host)};
}

void check_sizes(std::string_view key, std::string_view value) {
  if (key.size() <= kMostKeyBytes && value.size() <= kMostValueBytes) return;
  throw Error(ExitCode::internal, "store",
              fmt::format("a key of {} bytes with {} bytes", key.size(), value.size()),
              fmt::format("at most {} and {}", kMostKeyBytes, kMostValueBytes));
}

std::string cut(std::string_view reason) {
  constexpr std::size_t kMostReasonBytes = 2000;
  return std::string(reason.substr(0, kMostReasonBytes));
}

std::string frame_bytes(const Frame& frame) {
  std::string out;
  put(out, static_cast<std::uint32_t>(kFrameFixed + frame.key.size() + frame.value.size()));
  put(out, static_cast<std::uint8_t>(frame.kind));
  put(out, frame.id);
  put(out, static_cast<std::uint16_t>(frame.key.size()));
  return out + frame.key + frame.value;
}

// A length or key length out of bounds ends the connection: the bytes cannot be trusted after that.
std::optional<Frame> FrameReader::next() {
  if (broken_ || bytes_.size() < kFrameHead) return std::nullopt;
  const std::size_t length = take<std::uint32_t>(bytes_, 0);
  if (length < kFrameFixed || length > kFrameFixed + kMostKeyBytes + kMostValueBytes) {
    broken_ = true;
    return std::nullopt;
  }
  if (bytes_.size() < kFrameHead + length) return std::nullopt;
  const std::string_view body = std::string_view(bytes_).substr(kFrameHead, length);
  const std::size_t key_bytes = take<std::uint16_t>(body, 5);
  if (key_bytes > kMostKeyBytes || key_bytes > length - kFrameFixed ||
      length - kFrameFixed - key_bytes > kMostValueBytes) {
    broken_ = true;
    return std::nullopt;
  }
  Frame frame{.kind = static_cast<Kind>(take<std::uint8_t>(body, 0)),
              .id = take<std::uint32_t>(body, 1),
              .key = std::string(body.substr(kFrameFixed, key_bytes)),
              .value = std::string(body.substr(kFrameFixed + key_bytes))};
  bytes_.erase(0, kFrameHead + length);
  return frame;
}

}  // namespace tessera::trainer::wire
