// SPDX-License-Identifier: Apache-2.0
// The protocol between the store and its clients: a greeting in which both prove that they know the
// token, then frames. All integers are little-endian. Whoever says anything else is cut off.
//
//   client -> rank 0   Hello: who I am, and random bytes
//   rank 0 -> client   Answer: random bytes of its own, and the keyed hash of "answer", Hello and
//                      these
//   client -> rank 0   Proof: the keyed hash of "proof", Hello and Answer
//   rank 0 -> client   a frame `welcome` or `refused`, if the proof holds
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::trainer::wire {

// A secret that only the ranks of one start know: the key of SipHash-2-4, with which they hash.
using Token = std::array<std::uint8_t, 16>;

Token random_token();
// Converts to 32 hexadecimal digits and back; nothing if the text is none.
std::string to_hex(const Token& token);
std::optional<Token> token_of(std::string_view hex);
// Derives a token from a text. Everyone who knows the text can do so: it is no secret, but tells
// two texts apart.
Token derived_token(std::string_view text);

struct Hello {
  int rank = 0;
  int ranks = 0;
  int node = 0;
  int nodes = 0;
  std::string host;  // its first 64 bytes go over the wire
};

inline constexpr std::size_t kMagicBytes = 8;
inline constexpr std::size_t kHelloBytes = 112;
inline constexpr std::size_t kAnswerBytes = 32;
inline constexpr std::size_t kProofBytes = 8;

// Returns the bytes of a hello, with fresh random bytes at each call.
std::string hello_bytes(const Hello& hello);
std::string answer_bytes(const Token& token, std::string_view hello);
std::string proof_bytes(const Token& token, std::string_view hello, std::string_view answer);

// Returns whether the bytes so far (any number) can begin a greeting: garbage is refused at once.
bool may_be_hello(std::string_view begin);
bool may_be_answer(std::string_view begin);
bool answer_holds(const Token& token, std::string_view hello, std::string_view answer);
bool proof_holds(const Token& token, std::string_view hello, std::string_view answer,
                 std::string_view proof);

// Parses a hello. Nothing if it is of another version of the protocol or holds what no rank says.
std::optional<Hello> parse_hello(std::string_view bytes);

enum class Kind : std::uint8_t {
  // from a client
  set = 1,  // key, value; answered by done or twice
  get,      // key; answered by value, or by absent once a rank is lost
  fail,     // value: why this rank fails; answered by done
  who,      // its time is over: who has not come? answered by not_met
  leave,    // in peace
  // from rank 0
  welcome = 64,
  refused,  // value: why
  met,      // all have come
  not_met,  // value: who has not
  done,
  twice,  // the key was set before
  value,
  absent,
  lost,  // id: rank, value: reason
  end,   // rank 0 leaves in peace
};

struct Frame {
  Kind kind{};
  std::uint32_t id = 0;  // of a request and its answer
  std::string key;
  std::string value;
};

inline constexpr std::size_t kMostKeyBytes = 1024;
inline constexpr std::size_t kMostValueBytes = 64 * 1024;

// Throws Error(internal) if a frame cannot hold them.
void check_sizes(std::string_view key, std::string_view value);

// Cuts a reason to what a frame holds.
std::string cut(std::string_view reason);

std::string frame_bytes(const Frame& frame);

// Collects bytes as they come and returns whole frames.
class FrameReader {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  std::optional<Frame> next();
  // Returns whether something came that is no frame: nothing can follow it.
  bool is_broken() const { return broken_; }

 private:
  std::string bytes_;
  bool broken_ = false;
};

}  // namespace tessera::trainer::wire
