// SPDX-License-Identifier: Apache-2.0
// Vector clocks (Fidge 1988) over the streams and the host, and a map of byte ranges
// to their last accesses.
#include "tests/trainer/device/tracing.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lib/base/error.h"
#include "lib/schedule/schedule.h"

namespace tessera::trainer {
namespace {

std::uintptr_t begin_of(std::span<const std::byte> range) {
  return reinterpret_cast<std::uintptr_t>(range.data());
}

void join(auto& clock, const auto& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

std::size_t index_of(Stream stream) {
  return static_cast<std::size_t>(stream);
}

std::size_t index_of(Event event) {
  if (event >= kEvents) {
    throw Error(ExitCode::internal, "event", fmt::format("{} of {}", event, kEvents));
  }
  return event;
}

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::recompute:
      return "recompute";
    case Phase::backward:
      return "backward";
    case Phase::update:
      return "update";
  }
  return "?";
}

std::string_view pool_name(Pool pool) {
  switch (pool) {
    case Pool::device:
      return "the device pool";
    case Pool::communication:
      return "the communication pool";
    case Pool::pinned:
      return "the pinned pool";
  }
  return "?";
}

std::string who(const Race::Side& side) {
  return side.stream ? fmt::format("stream {}", to_text(*side.stream)) : "the host";
}

std::string describe(const Race::Side& side) {
  std::string text = fmt::format("{} (access {} of {}", side.what, side.number, who(side));
  if (side.tag) {
    text += fmt::format("; unit {}, microbatch {}, {}", side.tag->unit, side.tag->microbatch,
                        phase_name(side.tag->phase));
  }
  return text + ")";
}

}  // namespace

std::string to_text(const Race& race) {
  std::string text =
      fmt::format("{} {} {}, {} {} them, and nothing orders the two; ", describe(race.first),
                  race.first.writes ? "writes" : "reads", race.place, describe(race.second),
                  race.second.writes ? "writes" : "reads");
  const auto piece = std::ssize(race.overlap);
  if (race.bytes > piece) text += fmt::format("(and {} bytes elsewhere) ", race.bytes - piece);
  return text + fmt::format("{} must first wait for an event that {} records after that {}",
                            who(race.second), who(race.first), race.first.what);
}

void Trace::touch(Stream stream, const Ranges& reads, const Ranges& writes, std::string_view what,
                  std::optional<Tag> tag) {
  // Issued work comes after everything that the host has done and waited for.
  join(clocks_[index_of(stream)], clocks_[kHost]);
  access(index_of(stream), reads, writes, what, tag);
}

void Trace::host_access(const Ranges& reads, const Ranges& writes, std::string_view what) {
  access(kHost, reads, writes, what, {});
}

void Trace::name(std::span<const std::byte> range, std::string_view what) {
  if (range.empty()) return;
  named_.push_back({begin_of(range), begin_of(range) + range.size(), std::string(what)});
}

void Trace::record(Stream stream, Event event) {
  events_[index_of(event)] = clocks_[index_of(stream)];
}

void Trace::wait(Stream stream, Event event) {
  const auto& recorded = events_[index_of(event)];
  if (recorded) join(clocks_[index_of(stream)], *recorded);
}

void Trace::host_wait(Event event) {
  const auto& recorded = events_[index_of(event)];
  if (recorded) join(clocks_[kHost], *recorded);
}

std::int64_t Trace::accesses() const {
  std::int64_t sum = 0;
  for (std::size_t actor = 0; actor < kActors; ++actor) sum += clocks_[actor][actor];
  return sum;
}

std::string Trace::text() const {
  std::string text;
  for (const Race& race : races_) text += to_text(race) + "\n";
  const auto kept = static_cast<std::int64_t>(races_.size());
  if (race_count_ > kept) text += fmt::format("and {} more\n", race_count_ - kept);
  return text;
}

void Trace::access(std::size_t actor, const Ranges& reads, const Ranges& writes,
                   std::string_view what, std::optional<Tag> tag) {
  auto name = names_.find(what);
  if (name == names_.end()) name = names_.emplace(what).first;
  const Use use{++clocks_[actor][actor], &*name, tag};
  current_.clear();
  for (const auto& range : reads) read(actor, range, use);
  for (const auto& range : writes) write(actor, range, use);
}

// Splits the piece that contains `at`, so that a piece begins there.
void Trace::split(std::uintptr_t at) {
  auto after = pieces_.upper_bound(at);
  if (after == pieces_.begin()) return;
  auto& [begin, piece] = *std::prev(after);
  if (begin == at || piece.end <= at) return;
  pieces_.emplace_hint(after, at, piece);
  piece.end = at;
}

void Trace::check_write(std::size_t actor, std::uintptr_t begin, std::uintptr_t end,
                        const Piece& piece, const Use& use, bool second_writes) {
  // An access of another actor whose number the clock has not reached may still be running.
  if (piece.write.number > clocks_[actor][piece.writer]) {
    found(piece.writer, piece.write, true, actor, use, second_writes, begin, end);
  }
}

void Trace::read(std::size_t actor, std::span<const std::byte> range, const Use& use) {
  if (range.empty()) return;
  std::uintptr_t at = begin_of(range);
  const std::uintptr_t end = at + range.size();
  split(at);
  split(end);
  for (auto next = pieces_.lower_bound(at); at < end;) {
    if (next == pieces_.end() || next->first > at) {  // not accessed before
      Piece fresh;
      fresh.end = next == pieces_.end() ? end : std::min(end, next->first);
      fresh.reads[actor] = use;
      pieces_.emplace_hint(next, at, fresh);
      at = fresh.end;
      continue;
    }
    auto& [begin, piece] = *next;
    check_write(actor, begin, piece.end, piece, use, false);
    piece.reads[actor] = use;
    at = piece.end;
    ++next;
  }
}

void Trace::write(std::size_t actor, std::span<const std::byte> range, const Use& use) {
  if (range.empty()) return;
  const std::uintptr_t at = begin_of(range);
  const std::uintptr_t end = at + range.size();
  split(at);
  split(end);
  auto next = pieces_.lower_bound(at);
  while (next != pieces_.end() && next->first < end) {
    const auto& [begin, piece] = *next;
    check_write(actor, begin, piece.end, piece, use, true);
    for (std::size_t reader = 0; reader < kActors; ++reader) {
      const Use& read = piece.reads[reader];
      if (read.number > clocks_[actor][reader]) {
        found(reader, read, false, actor, use, true, begin, piece.end);
      }
    }
    next = pieces_.erase(next);
  }
  // What is ordered after this write is ordered after everything before it, so the history starts
  // anew.
  Piece fresh;
  fresh.end = end;
  fresh.writer = actor;
  fresh.write = use;
  pieces_.emplace_hint(next, at, fresh);
}

void Trace::found(std::size_t first, const Use& first_use, bool first_writes, std::size_t second,
                  const Use& second_use, bool second_writes, std::uintptr_t begin,
                  std::uintptr_t end) {
  const auto known = std::find(current_.begin(), current_.end(), Key{first, first_use.number});
  const auto bytes = static_cast<std::int64_t>(end - begin);
  if (known != current_.end()) {
    // Races of one access lie together at the end of the kept ones.
    const auto later = static_cast<std::size_t>(current_.end() - known);
    const auto number = static_cast<std::size_t>(race_count_) - later;
    if (number >= races_.size()) return;
    Race& race = races_[number];
    if (race.first.writes != first_writes || race.second.writes != second_writes) return;
    const std::uintptr_t old = begin_of(race.overlap);
    if (old + race.overlap.size() == begin && race.bytes == std::ssize(race.overlap)) {
      race.overlap = {race.overlap.data(), race.overlap.size() + (end - begin)};
      race.place = place(old, end);
    }
    race.bytes += bytes;
    return;
  }
  current_.push_back({first, first_use.number});
  ++race_count_;
  if (races_.size() >= max_races_) return;
  const auto side = [](std::size_t actor, const Use& use, bool writes) {
    Race::Side s;
    if (actor != kHost) s.stream = static_cast<Stream>(actor);
    s.what = *use.what;
    s.tag = use.tag;
    s.number = use.number;
    s.writes = writes;
    return s;
  };
  Race race;
  race.first = side(first, first_use, first_writes);
  race.second = side(second, second_use, second_writes);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that came in as a pointer
  race.overlap = {reinterpret_cast<const std::byte*>(begin), end - begin};
  race.bytes = bytes;
  race.place = place(begin, end);
  races_.push_back(std::move(race));
}

std::string Trace::place(std::uintptr_t begin, std::uintptr_t end) const {
  const Named* best = nullptr;
  for (const Named& named : named_) {
    if (begin < named.begin || end > named.end) continue;
    if (best == nullptr || named.end - named.begin <= best->end - best->begin) best = &named;
  }
  if (best == nullptr) return fmt::format("{} bytes from address {:#x}", end - begin, begin);
  return fmt::format("bytes {} to {} of {}", begin - best->begin, end - 1 - best->begin,
                     best->what);
}

namespace {

std::span<const std::byte> bytes_at(const void* p, std::int64_t bytes) {
  return {static_cast<const std::byte*>(p),
          static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0))};
}

class TracingDevice final : public Device {
 public:
  TracingDevice(Device& inner, Trace& trace) : inner_(inner), trace_(trace) {}

  const DeviceInfo& info() const override { return inner_.info(); }
  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    std::byte* p = inner_.allocate(pool, bytes);
    trace_.name(bytes_at(p, bytes), pool_name(pool));
    return p;
  }
  std::int64_t workspace_bytes(const Op& op) const override { return inner_.workspace_bytes(op); }
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    inner_.prepare(all, workspace);
    trace_.name(workspace, "the workspace");
    if (workspace.size() > workspace_.size()) workspace_ = workspace;
  }
  void seal() override { inner_.seal(); }

  // The access is recorded before it runs, so that a race is known even if it makes the operation
  // fail.
  void run(Stream stream, const Op& op, Tag tag) override {
    Access all = access(op);
    // All streams share the one workspace, and each operation overwrites it.
    const auto scratch =
        std::min(static_cast<std::size_t>(inner_.workspace_bytes(op)), workspace_.size());
    if (scratch > 0) all.writes.emplace_back(workspace_.first(scratch));
    trace_.touch(stream, all.reads, all.writes, op_name(op), tag);
    inner_.run(stream, op, tag);
  }
  void copy(Stream stream, void* dst, const void* src, std::int64_t bytes) override {
    trace_.touch(stream, {bytes_at(src, bytes)}, {bytes_at(dst, bytes)}, "copy");
    inner_.copy(stream, dst, src, bytes);
  }
  void record(Stream stream, Event event) override {
    inner_.record(stream, event);
    trace_.record(stream, event);
  }
  void wait(Stream stream, Event event) override {
    inner_.wait(stream, event);
    trace_.wait(stream, event);
  }
  void host_wait(Event event) override {
    inner_.host_wait(event);
    trace_.host_wait(event);
  }
  double seconds(Event from, Event to) override { return inner_.seconds(from, to); }

 private:
  Device& inner_;
  Trace& trace_;
  std::span<const std::byte> workspace_;
};

}  // namespace

std::unique_ptr<Device> tracing(Device& inner, Trace& trace) {
  return std::make_unique<TracingDevice>(inner, trace);
}

}  // namespace tessera::trainer
