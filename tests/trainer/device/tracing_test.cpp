// SPDX-License-Identifier: Apache-2.0
// What the tracing device reports as a race, and what it does not.
#include "tests/trainer/device/tracing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "lib/base/error.h"
#include "tests/trainer/device/schedules.h"
#include "tests/trainer/device/shuffling.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using enum Stream;

namespace {

// Addresses only: a trace reads no memory.
std::span<const std::byte> range(std::uintptr_t begin, std::size_t size) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return {reinterpret_cast<const std::byte*>(0x10000 + begin), size};
}

std::size_t offset(const Race& race) {
  return reinterpret_cast<std::uintptr_t>(race.overlap.data()) - 0x10000;
}

// Returns whether two accesses of different streams with nothing between them are a race.
bool conflict(bool first_writes, std::span<const std::byte> first, bool second_writes,
              std::span<const std::byte> second) {
  using Ranges = Trace::Ranges;
  Trace trace;
  trace.touch(compute, first_writes ? Ranges{} : Ranges{first},
              first_writes ? Ranges{first} : Ranges{}, "first");
  trace.touch(gather, second_writes ? Ranges{} : Ranges{second},
              second_writes ? Ranges{second} : Ranges{}, "second");
  return trace.race_count() > 0;
}

struct Traced {
  std::unique_ptr<Device> device;
  Trace trace;
  TrainingOutcome run(int left_out) {
    return run_training(
        [this](Device& cpu) -> Device& {
          device = tracing(cpu, trace);
          return *device;
        },
        &trace, left_out);
  }
};

}  // namespace

TEST_CASE("ranges conflict where they overlap and one is written") {
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      CAPTURE(first);
      CAPTURE(second);
      const bool either = first || second;
      CHECK(conflict(first, range(100, 10), second, range(100, 10)) == either);
      CHECK(conflict(first, range(100, 10), second, range(109, 10)) == either);
      CHECK(conflict(first, range(100, 10), second, range(91, 10)) == either);
      CHECK(conflict(first, range(100, 10), second, range(103, 2)) == either);
      CHECK(conflict(first, range(103, 2), second, range(100, 10)) == either);
      // Ranges that touch, that are apart, and empty ones.
      CHECK(!conflict(first, range(100, 10), second, range(110, 10)));
      CHECK(!conflict(first, range(100, 10), second, range(90, 10)));
      CHECK(!conflict(first, range(100, 10), second, range(200, 1)));
      CHECK(!conflict(first, range(100, 10), second, range(105, 0)));
      CHECK(!conflict(first, range(105, 0), second, range(100, 10)));
    }
  }
}

TEST_CASE("a race says who does what to which bytes, and which wait is missing") {
  Trace trace;
  trace.name(range(0, 1000), "the device pool");
  trace.name(range(96, 64), "slot 1");
  trace.touch(compute, {range(0, 8)}, {range(100, 10), range(200, 4)}, "gemm",
              Tag{3, 1, Phase::backward});
  trace.touch(gather, {}, {range(500, 1)}, "all_gather");
  trace.touch(gather, {}, {range(106, 10), range(202, 1)}, "all_gather", Tag{4, 1, Phase::forward});
  REQUIRE(trace.races().size() == 1);
  const Race& race = trace.races()[0];
  CHECK(race.first.stream == compute);
  CHECK(race.first.what == "gemm");
  CHECK(race.first.number == 1);
  CHECK(race.first.writes);
  CHECK(race.second.stream == gather);
  CHECK(race.second.number == 2);
  CHECK(race.second.tag->unit == 4);
  CHECK(offset(race) == 106);
  CHECK(race.overlap.size() == 4);
  CHECK(race.bytes == 5);
  CHECK(trace.accesses() == 3);
  CHECK(trace.text() ==
        "gemm (access 1 of stream compute; unit 3, microbatch 1, backward) writes bytes 10 to 13 "
        "of slot 1, all_gather (access 2 of stream gather; unit 4, microbatch 1, forward) writes "
        "them, and nothing orders the two; (and 1 bytes elsewhere) stream gather must first wait "
        "for an event that stream compute records after that gemm\n");

  trace.host_access({range(500, 1)}, {}, "result");
  REQUIRE(trace.races().size() == 2);
  CHECK(!trace.races()[1].second.stream);
  CHECK(to_text(trace.races()[1]) ==
        "all_gather (access 1 of stream gather) writes bytes 500 to 500 of the device pool, result "
        "(access 1 of the host) reads them, and nothing orders the two; the host must first wait "
        "for an event that stream gather records after that all_gather");
}

TEST_CASE("an overlap of several pieces is one race, and few races are kept but all are counted") {
  Trace trace(2);
  for (std::size_t row = 0; row < 10; ++row) trace.touch(compute, {}, {range(row * 8, 8)}, "row");
  trace.touch(gather, {range(0, 80)}, {range(0, 80)}, "all");
  CHECK(trace.race_count() == 10);
  REQUIRE(trace.races().size() == 2);
  CHECK(trace.races()[1].bytes == 8);  // counted once although read and written
  CHECK(trace.text().ends_with("and 8 more\n"));

  Trace pieces;
  pieces.touch(compute, {}, {range(0, 8), range(8, 8), range(32, 8)}, "rows");
  pieces.touch(compute, {range(4, 30)}, {}, "splits them");
  pieces.touch(gather, {range(0, 80)}, {}, "all");
  REQUIRE(pieces.race_count() == 1);
  CHECK(offset(pieces.races()[0]) == 0);
  CHECK(pieces.races()[0].overlap.size() == 16);
  CHECK(pieces.races()[0].bytes == 24);
}

TEST_CASE("columns of the same rows are apart") {
  std::vector<float> memory(4 * 8);
  const auto columns = [&](std::int64_t begin) {
    return Tensor{memory.data() + begin, DType::f32, 4, 4, 8};
  };
  std::vector<float> other(4 * 4);
  const Tensor from{other.data(), DType::f32, 4, 4, 4};
  const auto cpu = cpu_device(1);
  Trace trace;
  const auto device = tracing(*cpu, trace);
  device->run(compute, Cast{from, columns(0)}, {});
  device->run(gather, Cast{from, columns(4)}, {});
  CHECK(trace.text() == "");
  device->run(reduce, Cast{from, columns(3)}, {});
  CHECK(trace.race_count() == 2);
}

TEST_CASE("events order streams, also through a third") {
  // Returns the races if gather waits for the first event and compute for the second; compute reads
  // what copy wrote.
  const auto races = [](std::optional<Event> first, std::optional<Event> second) {
    Trace trace;
    trace.touch(copy, {}, {range(0, 8)}, "write");
    trace.record(copy, 1);
    if (first) trace.wait(gather, *first);
    trace.record(gather, 2);
    if (second) trace.wait(compute, *second);
    trace.touch(compute, {range(0, 8)}, {}, "read");
    return trace.race_count();
  };
  CHECK(races(1, 2) == 0);
  CHECK(races({}, 1) == 0);
  CHECK(races({}, 2) == 1);
  CHECK(races(1, {}) == 1);
  CHECK(races(3, 2) == 1);  // never recorded: orders nothing
}

TEST_CASE("a wait means the record last issued before it") {
  Trace trace;
  trace.touch(gather, {}, {range(0, 8)}, "one");
  trace.record(gather, 1);
  trace.wait(compute, 1);
  trace.touch(gather, {}, {range(8, 8)}, "two");
  trace.record(gather, 1);
  trace.touch(compute, {range(0, 8)}, {}, "read");
  CHECK(trace.race_count() == 0);
  trace.touch(compute, {range(8, 8)}, {}, "read");  // the older record was before "two"
  CHECK(trace.race_count() == 1);
  trace.wait(reduce, 1);
  trace.touch(reduce, {range(0, 16)}, {}, "read");
  CHECK(trace.race_count() == 1);

  // A stream that knows nothing of the first records the event again.
  Trace other;
  other.touch(gather, {}, {range(0, 8)}, "one");
  other.record(gather, 1);
  other.record(copy, 1);
  other.wait(compute, 1);
  other.touch(compute, {range(0, 8)}, {}, "read");
  CHECK(other.race_count() == 1);
}

TEST_CASE("work comes after what the host did before its issue; the host must wait") {
  Trace trace;
  trace.host_access({}, {range(0, 8)}, "fill");
  trace.touch(copy, {range(0, 8)}, {range(100, 8)}, "copy");
  trace.record(copy, 1);
  CHECK(trace.race_count() == 0);
  trace.host_access({range(0, 8)}, {}, "look");  // both read
  CHECK(trace.race_count() == 0);
  SUBCASE("without a wait") {
    trace.host_access({}, {range(0, 8)}, "fill");
    CHECK(trace.race_count() == 1);
  }
  SUBCASE("with a wait, which what is issued afterwards knows of") {
    trace.host_wait(1);
    trace.host_access({}, {range(0, 8)}, "fill");
    trace.touch(compute, {range(100, 8)}, {}, "read");
    CHECK(trace.race_count() == 0);
  }
}

TEST_CASE("operations that need the workspace share it") {
  const auto cpu = cpu_device(1);
  Trace trace;
  const auto device = tracing(*cpu, trace);
  HostMemory memory;
  const auto tensor = [&] { return Tensor{memory(512), DType::bf16, 16, 16, 16}; };
  const Op one = Gemm{tensor(), tensor(), tensor()};
  const Op two = Gemm{tensor(), tensor(), tensor()};
  const std::int64_t workspace = device->workspace_bytes(one);
  REQUIRE(workspace > 0);
  device->prepare(std::vector<Op>{one, two},
                  {memory(workspace), static_cast<std::size_t>(workspace)});
  device->seal();
  device->run(compute, one, {});
  device->record(compute, 0);
  SUBCASE("in order") {
    device->wait(gather, 0);
    device->run(gather, two, {});
    CHECK(trace.text() == "");
  }
  SUBCASE("at once") {
    device->run(gather, two, {});
    REQUIRE(trace.race_count() == 1);
    CHECK(trace.text().find("of the workspace") != std::string::npos);
  }
}

TEST_CASE("pools are named, and copies trace both their ends") {
  const auto cpu = cpu_device(1);
  Trace trace;
  const auto device = tracing(*cpu, trace);
  std::byte* pool = device->allocate(Pool::pinned, 1024);
  std::byte* to = device->allocate(Pool::device, 1024);
  device->copy(copy, to + 16, pool + 256, 64);
  device->copy(compute, pool + 300, to + 512, 10);
  device->copy(reduce, to + 700, to + 79, 1);
  REQUIRE(trace.race_count() == 2);
  CHECK(trace.races()[0].place == "bytes 300 to 309 of the pinned pool");
  CHECK(!trace.races()[0].first.writes);
  CHECK(trace.races()[1].place == "bytes 79 to 79 of the device pool");
  CHECK(trace.races()[1].first.writes);
}

TEST_CASE("a wait for what was never recorded is the inner device's to judge, and orders nothing") {
  const auto cpu = cpu_device(1);
  Trace trace;
  CHECK_THROWS_AS(tracing(*cpu, trace)->wait(compute, 7), Error);
  CHECK_THROWS_AS(tracing(*cpu, trace)->record(compute, kEvents), Error);
  CHECK_THROWS_AS(trace.record(compute, kEvents), Error);

  const auto lenient = shuffling(*cpu, 42);
  const auto device = tracing(*lenient, trace);
  device->seal();
  std::vector<std::byte> memory(8);
  device->copy(gather, memory.data(), memory.data() + 4, 4);
  device->wait(compute, 7);
  device->copy(compute, memory.data() + 4, memory.data(), 4);
  CHECK(trace.race_count() == 1);
}

TEST_CASE("a training without faults has no race, and without any one of its waits it has") {
  const TrainingOutcome plain =
      run_training([](Device& cpu) -> Device& { return cpu; }, nullptr, kNone);
  REQUIRE(plain.waits > 40);
  Traced whole;
  CHECK(whole.run(kNone).read == plain.read);
  CHECK(whole.trace.text() == "");
  CHECK(whole.trace.accesses() > 70);
  for (int wait = 0; wait < plain.waits; ++wait) {
    CAPTURE(wait);
    Traced traced;
    // The CPU runs in order, so the bits say nothing here.
    CHECK(traced.run(wait).read == plain.read);
    CHECK(traced.trace.race_count() > 0);
  }
}

TEST_CASE("races are what the definition says") {
  int racy = 0;
  int clean = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    const std::vector<Step> schedule = random_schedule(seed, 6 + static_cast<int>(seed % 40));
    Trace trace;
    std::array<std::vector<std::size_t>, kStreams + 1> numbers;  // of accesses, by actor
    for (std::size_t i = 0; i < schedule.size(); ++i) {
      const Step& step = schedule[i];
      const Trace::Ranges none;
      const Trace::Ranges all{
          range(static_cast<std::uintptr_t>(step.begin), static_cast<std::size_t>(step.size))};
      const auto& reads = step.writes ? none : all;
      const auto& writes = step.writes ? all : none;
      switch (step.kind) {
        case Step::Kind::touch:
          trace.touch(step.stream, reads, writes, "touch");
          numbers[static_cast<std::size_t>(step.stream)].push_back(i);
          break;
        case Step::Kind::host:
          trace.host_access(reads, writes, "host");
          numbers[kStreams].push_back(i);
          break;
        case Step::Kind::record:
          trace.record(step.stream, step.event);
          break;
        case Step::Kind::wait:
          trace.wait(step.stream, step.event);
          break;
        case Step::Kind::host_wait:
          trace.host_wait(step.event);
          break;
      }
    }

    const auto before = happens_before(schedule);
    const auto races = [&](std::size_t i, std::size_t j) {
      const Step& a = schedule[i];
      const Step& b = schedule[j];
      return a.accesses() && b.accesses() && (a.writes || b.writes) && !before[i][j] &&
             a.begin < b.begin + b.size && b.begin < a.begin + a.size;
    };
    std::size_t first = schedule.size();  // the earliest access that races with an earlier one
    for (std::size_t j = 0; j < schedule.size() && first == schedule.size(); ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        if (races(i, j)) first = j;
      }
    }
    const auto step_of = [&](const Race::Side& side) {
      return numbers[side.stream ? static_cast<std::size_t>(*side.stream) : kStreams].at(
          static_cast<std::size_t>(side.number - 1));
    };
    if (first == schedule.size()) {
      CHECK(trace.text() == "");
      ++clean;
      continue;
    }
    ++racy;
    REQUIRE(!trace.races().empty());
    CHECK(step_of(trace.races()[0].second) == first);
    std::set<int> racing;  // the bytes of `first` that race
    for (std::size_t i = 0; i < first; ++i) {
      if (!races(i, first)) continue;
      const Step& a = schedule[i];
      const Step& b = schedule[first];
      for (int byte = std::max(a.begin, b.begin);
           byte < std::min(a.begin + a.size, b.begin + b.size); ++byte) {
        racing.insert(byte);
      }
    }
    std::int64_t reported = 0;
    for (const Race& race : trace.races()) {
      const std::size_t i = step_of(race.first);
      const std::size_t j = step_of(race.second);
      CHECK(races(i, j));
      // Bytes written between the two accesses race with that write instead.
      const int begin = std::max(schedule[i].begin, schedule[j].begin);
      const int end =
          std::min(schedule[i].begin + schedule[i].size, schedule[j].begin + schedule[j].size);
      const auto piece = static_cast<int>(offset(race));
      const auto size = static_cast<int>(race.overlap.size());
      CHECK((piece >= begin && piece + size <= end));
      CHECK((race.bytes >= size && race.bytes <= end - begin));
      if (j == first) reported += race.bytes;
    }
    CHECK(reported >= static_cast<std::int64_t>(racing.size()));
  }
  CHECK(racy > 300);
  CHECK(clean > 300);
}
