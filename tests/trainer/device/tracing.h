// SPDX-License-Identifier: Apache-2.0
// Finds races in a schedule: two accesses to the same bytes, at least one of them a write, on two
// streams (or on a stream and the host) that no event orders. Such a pair is a failure even if the
// device happened to run it in the right order, as the CPU always does.
//
// The order is that of CUDA. Work of one stream runs in order of issue. `record` marks everything
// that its stream was given before; `wait` puts that before everything that its stream is given
// afterwards. It refers to the record last issued for the event, or to nothing if there was none.
// Issued work comes after everything that the host did before it was issued; `host_wait` puts a
// record before everything that the host does afterwards. Nothing else orders anything, not even
// `seconds` and `seal`.
//
// A Trace remembers addresses and reads no memory: memory that is freed and allocated again at the
// same place is the same place. One Trace serves one device and one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/names.h"
#include "trainer/device/device.h"
namespace tessera::trainer {

struct Race {
  struct Side {
    std::optional<Stream> stream;  // none: the host
    std::string what;              // "gemm", "copy", or what touch and host_access were given
    std::optional<Tag> tag;
    std::int64_t number = 0;  // of its stream's (the host's) traced accesses, from 1
    bool writes = false;
  };
  Side first, second;  // in order of issue
  // The bytes that both access in these ways: the first contiguous piece, and the size of all
  // pieces.
  std::span<const std::byte> overlap;
  std::int64_t bytes = 0;
  std::string place;  // the piece in words: "bytes 0 to 255 of the device pool"
};

using tessera::to_text;  // of enumerations: what follows must not hide it
// Returns one line: who does what to which bytes, and which wait would order it.
std::string to_text(const Race& race);

class Trace {
 public:
  using Ranges = std::vector<std::span<const std::byte>>;

  // Keeps the first `max_races` races and counts all.
  explicit Trace(std::size_t max_races = 100) : max_races_(max_races) {}

  // Records what a stream does that is no operation: the collectives of a communicator.
  void touch(Stream stream, const Ranges& reads, const Ranges& writes, std::string_view what,
             std::optional<Tag> tag = {});
  // Records what the host itself reads and writes at once: pinned memory.
  void host_access(const Ranges& reads, const Ranges& writes, std::string_view what);
  // Names bytes for the text of races; the smallest named range that holds them counts.
  void name(std::span<const std::byte> range, std::string_view what);

  void record(Stream stream, Event event);
  void wait(Stream stream, Event event);
  void host_wait(Event event);

  // A race is a pair of accesses, however many bytes and ways it has. After a race the later write
  // stands for both, so that one missing wait is not reported again by everything that follows.
  std::span<const Race> races() const { return races_; }
  std::int64_t race_count() const { return race_count_; }
  // Returns the operations, copies, touches and host accesses seen. A test that saw none has tested
  // nothing.
  std::int64_t accesses() const;
  // Returns the kept races, a line each, then how many more there are; "" without races.
  std::string text() const;

 private:
  static constexpr std::size_t kHost = kStreams;
  static constexpr std::size_t kActors = kStreams + 1;
  // A vector clock: the number of each actor's last access that is known to be over.
  using Clock = std::array<std::int64_t, kActors>;

  struct Use {
    std::int64_t number = 0;  // 0: none
    const std::string* what = nullptr;
    std::optional<Tag> tag;
  };
  // Bytes with one history: the last write, and each actor's last read since.
  struct Piece {
    std::uintptr_t end = 0;
    std::size_t writer = 0;
    Use write;
    std::array<Use, kActors> reads;
  };
  struct Key {  // of a race's first side
    std::size_t actor;
    std::int64_t number;
    bool operator==(const Key&) const = default;
  };
  using Pieces = std::map<std::uintptr_t, Piece>;  // by begin; disjoint

  void access(std::size_t actor, const Ranges& reads, const Ranges& writes, std::string_view what,
              std::optional<Tag> tag);
  void read(std::size_t actor, std::span<const std::byte> range, const Use& use);
  void write(std::size_t actor, std::span<const std::byte> range, const Use& use);
  void check_write(std::size_t actor, std::uintptr_t begin, std::uintptr_t end, const Piece& piece,
                   const Use& use, bool second_writes);
  void found(std::size_t first, const Use& first_use, bool first_writes, std::size_t second,
             const Use& second_use, bool second_writes, std::uintptr_t begin, std::uintptr_t end);
  void split(std::uintptr_t at);
  std::string place(std::uintptr_t begin, std::uintptr_t end) const;

  std::size_t max_races_;
  std::array<Clock, kActors> clocks_{};
  std::array<std::optional<Clock>, kEvents> events_;
  Pieces pieces_;
  std::set<std::string, std::less<>> names_;  // what accesses do, each text once
  struct Named {
    std::uintptr_t begin, end;
    std::string what;
  };
  std::vector<Named> named_;  // ranges
  std::vector<Race> races_;
  std::vector<Key> current_;  // races of the current access
  std::int64_t race_count_ = 0;
};

// Makes a device that forwards everything to `inner` and records it in `trace`: copies, and
// operations as access() declares them, with the workspace of those that need some. It names the
// pools. Both must outlive it.
std::unique_ptr<Device> tracing(Device& inner, Trace& trace);

}  // namespace tessera::trainer
