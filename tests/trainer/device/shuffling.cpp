// SPDX-License-Identifier: Apache-2.0
// Shuffling: a queue for each stream, and a choice among their heads.
#include "tests/trainer/device/shuffling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>

#include "lib/base/error.h"
#include "lib/schedule/schedule.h"

namespace tessera::trainer {
namespace {

using RecordId = std::uint64_t;  // in order of issue, from 1

struct Command {
  RecordId after = 0;          // a wait for this record if not 0; otherwise work
  std::function<void()> work;  // what it does, and its name
  std::string what;
};

struct Record {
  Stream stream;
  Event event;
};

class ShufflingDevice final : public Shuffling {
 public:
  ShufflingDevice(Device& inner, std::uint64_t seed) : inner_(inner), seed_(seed), random_(seed) {}

  const DeviceInfo& info() const override { return inner_.info(); }
  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    return inner_.allocate(pool, bytes);
  }
  std::int64_t workspace_bytes(const Op& op) const override { return inner_.workspace_bytes(op); }
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    inner_.prepare(all, workspace);
  }
  void seal() override {
    inner_.seal();
    sealed_ = true;
  }

  void run(Stream stream, const Op& op, Tag tag) override {
    issue(stream, op_name(op), [this, stream, op, tag] { inner_.run(stream, op, tag); });
  }
  void copy(Stream stream, void* dst, const void* src, std::int64_t bytes) override {
    issue(stream, "copy",
          [this, stream, dst, src, bytes] { inner_.copy(stream, dst, src, bytes); });
  }
  void enqueue(Stream stream, std::function<void()> work, std::string_view what) override {
    issue(stream, what, std::move(work));
  }

  void record(Stream stream, Event event) override {
    RecordId& last = last_[index_of(event)];
    if (!sealed_) return inner_.record(stream, event);
    const RecordId id = ++records_;
    last = id;
    waiting_.emplace(id, Record{stream, event});
    issue(stream, "record", [this, stream, event, id] {
      waiting_.erase(id);
      // If the event was recorded again meanwhile, nobody can ask for this record's time.
      if (last_[event] == id) inner_.record(stream, event);
    });
  }
  void wait(Stream stream, Event event) override {
    const RecordId id = last_[index_of(event)];
    if (!sealed_) return inner_.wait(stream, event);
    if (has_run(id)) return;
    queue(stream).push_back({id, {}, "wait"});
    ++pending_;
  }

  void host_wait(Event event) override {
    run_until(last_[index_of(event)]);
    inner_.host_wait(event);
  }
  double seconds(Event from, Event to) override {
    run_until(last_[index_of(from)]);
    run_until(last_[index_of(to)]);
    return inner_.seconds(from, to);
  }
  void drain() override {
    while (pending_ > 0) step(choose());
  }
  std::int64_t pending() const override { return pending_; }

 private:
  static std::size_t index_of(Event event) {
    if (event >= kEvents) {
      throw Error(ExitCode::internal, "event", fmt::format("{} of {}", event, kEvents));
    }
    return event;
  }
  std::deque<Command>& queue(Stream stream) { return queues_[static_cast<std::size_t>(stream)]; }

  void issue(Stream stream, std::string_view what, std::function<void()> work) {
    if (!sealed_) return work();
    queue(stream).push_back({0, std::move(work), std::string(what)});
    ++pending_;
  }

  bool has_run(RecordId id) const { return id == 0 || !waiting_.contains(id); }

  bool can_run(std::size_t stream) const {
    const auto& queue = queues_[stream];
    return !running_[stream] && !queue.empty() && has_run(queue.front().after);
  }

  void run_until(RecordId id) {
    while (!has_run(id)) step(seed_ == 8 ? needed(id) : choose());
  }

  // Returns the stream that must go on before the record can run.
  std::size_t needed(RecordId id) {
    for (;;) {
      const auto stream = static_cast<std::size_t>(waiting_.at(id).stream);
      if (can_run(stream)) return stream;
      // Waits bind to earlier records only, so the walk ends.
      if (running_[stream]) fail();
      id = queues_[stream].front().after;
    }
  }

  std::size_t choose() {
    std::array<std::size_t, kStreams> ready{};
    std::size_t count = 0;
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      if (!can_run(stream)) continue;
      if (stream == seed_) return stream;
      ready[count++] = stream;
    }
    if (count == 0) fail();
    if (seed_ >= kStreams && seed_ < 2 * kStreams && count > 1) {
      const auto end = ready.begin() + static_cast<std::ptrdiff_t>(count);
      const auto last = std::remove(ready.begin(), end, seed_ - kStreams);
      count = static_cast<std::size_t>(last - ready.begin());
    }
    return ready[random_() % count];
  }

  // Runs the head of a stream that can go on.
  void step(std::size_t stream) {
    Command command = std::move(queues_[stream].front());
    queues_[stream].pop_front();
    --pending_;
    if (command.after != 0) return;
    struct Running {  // clears the stream's mark when the work is done or fails
      std::optional<std::string>& what;
      ~Running() { what.reset(); }
    } running{running_[stream]};
    running.what = std::move(command.what);
    command.work();
  }

  [[noreturn]] void fail() const {
    std::string what = "what is waited for cannot run";
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const std::string_view name = to_text(static_cast<Stream>(stream));
      if (running_[stream]) {
        what += fmt::format("; {} is in the middle of {}", name, *running_[stream]);
      } else if (!queues_[stream].empty() && !can_run(stream)) {
        const Record& record = waiting_.at(queues_[stream].front().after);
        what += fmt::format("; {} waits for event {} of {}", name, record.event,
                            to_text(record.stream));
      }
    }
    throw Error(ExitCode::internal, "shuffling", what,
                "work of a stream must not wait for what is issued after it");
  }

  Device& inner_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  bool sealed_ = false;
  std::array<std::deque<Command>, kStreams> queues_;
  std::array<std::optional<std::string>, kStreams> running_;  // what a stream is in the middle of
  std::int64_t pending_ = 0;
  RecordId records_ = 0;
  std::array<RecordId, kEvents> last_{};          // last issued for each event
  std::unordered_map<RecordId, Record> waiting_;  // issued, not run yet
};

}  // namespace

std::unique_ptr<Shuffling> shuffling(Device& inner, std::uint64_t seed) {
  return std::make_unique<ShufflingDevice>(inner, seed);
}

}  // namespace tessera::trainer
