// SPDX-License-Identifier: Apache-2.0
// The orders that the shuffling device runs; it refuses none that is allowed.
#include "tests/trainer/device/shuffling.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "lib/base/error.h"
#include "tests/trainer/device/schedules.h"
#include "tests/trainer/device/tracing.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using enum Stream;

namespace {

constexpr std::uint64_t kSeeds = 50;  // each policy, then random ones

// A sealed shuffling device, and a record of what ran on it.
struct Shuffled {
  explicit Shuffled(std::uint64_t seed) : device(shuffling(*cpu, seed)) { device->seal(); }
  void work(Stream stream, char name) {
    device->enqueue(stream, [this, name] { order += name; }, std::string(1, name));
  }
  std::unique_ptr<Device> cpu = cpu_device(1);
  std::string order;
  std::unique_ptr<Shuffling> device;
};

std::string message(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::internal);
    return error.what();
  }
  return "";
}

TrainingOutcome shuffled_training(std::uint64_t seed, int left_out) {
  std::unique_ptr<Shuffling> device;
  return run_training(
      [&](Device& cpu) -> Device& {
        device = shuffling(cpu, seed);
        return *device;
      },
      nullptr, left_out);
}

}  // namespace

TEST_CASE("nothing runs at issue after seal, all runs at issue before it") {
  const auto cpu = cpu_device(1);
  const auto device = shuffling(*cpu, 0);
  std::vector<float> memory{1, 2, 3};
  const Tensor from{memory.data(), DType::f32, 1, 1, 1};
  const Tensor to{memory.data() + 1, DType::f32, 1, 1, 1};
  CHECK(device->allocate(Pool::device, 16) != nullptr);
  device->prepare(std::vector<Op>{Cast{from, to}}, {});
  device->copy(copy, &memory[2], &memory[1], sizeof(float));
  CHECK(memory[2] == 2);
  device->run(compute, Cast{from, to}, {});
  CHECK(memory[1] == 1);
  device->record(compute, 3);
  device->wait(copy, 3);
  int ran = 0;
  device->enqueue(copy, [&] { ++ran; });
  CHECK(ran == 1);

  device->seal();
  CHECK(message([&] { device->allocate(Pool::device, 16); }) != "");
  device->host_wait(3);  // recorded before
  memory[0] = 7;
  device->run(compute, Cast{from, to}, {});
  device->copy(compute, &memory[2], &memory[1], sizeof(float));
  device->enqueue(copy, [&] { ++ran; });
  device->record(compute, 4);
  CHECK(memory == std::vector<float>{7, 1, 2});
  CHECK(ran == 1);
  CHECK(device->pending() == 4);
  memory[0] = 8;  // read when the operation runs
  device->host_wait(4);
  CHECK(memory == std::vector<float>{8, 8, 8});
  device->drain();
  CHECK(ran == 2);
  CHECK(device->pending() == 0);
}

TEST_CASE("seconds makes both its records run, each event's last") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Shuffled s(seed);
    s.device->record(copy, 1);
    s.work(compute, 'a');
    s.device->record(compute, 1);  // this one counts, not the first record of event 1
    s.device->wait(gather, 1);
    s.work(gather, 'b');
    s.device->record(gather, 2);
    CHECK(s.order == "");
    CHECK(s.device->seconds(1, 2) >= 0);
    CHECK(s.order == "ab");
    s.device->record(copy, 3);
    s.work(gather, 'c');
    s.device->record(gather, 4);
    CHECK(s.device->seconds(3, 2) <= 0);
    CHECK(s.device->seconds(1, 4) >= 0);
    CHECK(s.order == "abc");
    s.device->drain();  // an old record does not move the time back
    CHECK(s.device->seconds(1, 2) >= 0);
    CHECK(message([&] { s.device->host_wait(9); }).find("9 was never recorded") !=
          std::string::npos);
    CHECK(message([&] { s.device->record(copy, kEvents); }) != "");
    CHECK(message([&] { s.device->wait(copy, kEvents); }) != "");
    CHECK(message([&] { s.device->host_wait(kEvents); }) != "");
    CHECK(message([&] { s.device->seconds(1, kEvents); }) != "");
  }
}

TEST_CASE("the policies are what they are called") {
  const auto order = [](std::uint64_t seed) {
    Shuffled s(seed);
    for (const char c : {'1', '2'}) {
      s.work(compute, static_cast<char>('a' + c - '1'));
      s.work(gather, static_cast<char>('g' + c - '1'));
      s.work(reduce, static_cast<char>('r' + c - '1'));
      s.work(copy, static_cast<char>('x' + c - '1'));
    }
    s.device->record(reduce, 0);
    s.device->host_wait(0);
    const std::string needed = s.order;
    s.device->drain();
    CHECK(s.order.size() == 8);
    CHECK(s.order.find('a') < s.order.find('b'));
    CHECK(s.order.find('r') < s.order.find('s'));
    return std::pair(needed, s.order);
  };
  CHECK(order(0).second.starts_with("ab"));
  CHECK(order(1).second.starts_with("gh"));
  CHECK(order(2).first == "rs");
  CHECK(order(3).second.starts_with("xy"));
  CHECK(order(4).second.ends_with("ab"));
  CHECK(order(5).second.ends_with("gh"));
  CHECK(order(6).second.ends_with("rs"));
  CHECK(order(7).second.ends_with("xy"));
  CHECK(order(8).first == "rs");
  CHECK(order(8).second != "rs");
  std::set<std::string> by_chance;
  for (std::uint64_t seed = kFirstRandomSeed; seed < kSeeds; ++seed) {
    by_chance.insert(order(seed).second);
    CHECK(order(seed) == order(seed));
  }
  CHECK(by_chance.size() > 35);
}

TEST_CASE("every order that the events allow comes, and no other") {
  int unordered = 0;
  for (std::uint64_t schedule_seed = 0; schedule_seed < 60; ++schedule_seed) {
    CAPTURE(schedule_seed);
    const std::vector<Step> schedule = random_schedule(schedule_seed, 24);
    const auto before = happens_before(schedule);
    const std::size_t n = schedule.size();
    // swapped[i][j]: j ran before i in some run, i < j.
    std::vector<std::vector<bool>> swapped(n, std::vector<bool>(n, false));
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const auto cpu = cpu_device(1);
      for (Event event = 0; event < 3; ++event) cpu->record(compute, event);
      const auto device = shuffling(*cpu, seed);
      device->seal();
      std::vector<std::size_t> order;
      for (std::size_t i = 0; i < n; ++i) {
        const Step& step = schedule[i];
        switch (step.kind) {
          case Step::Kind::touch:
            device->enqueue(step.stream, [&order, i] { order.push_back(i); });
            break;
          case Step::Kind::host:
            order.push_back(i);
            break;
          case Step::Kind::record:
            device->record(step.stream, step.event);
            break;
          case Step::Kind::wait:
            device->wait(step.stream, step.event);
            break;
          case Step::Kind::host_wait:
            device->host_wait(step.event);
            break;
        }
      }
      device->drain();
      for (std::size_t late = 0; late < order.size(); ++late) {
        for (std::size_t early = 0; early < late; ++early) {
          if (order[early] > order[late]) swapped[order[late]][order[early]] = true;
        }
      }
      std::sort(order.begin(), order.end());
      std::vector<std::size_t> all;
      for (std::size_t i = 0; i < n; ++i) {
        if (schedule[i].accesses()) all.push_back(i);
      }
      REQUIRE(order == all);
    }
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        if (!schedule[i].accesses() || !schedule[j].accesses()) continue;
        CAPTURE(i);
        CAPTURE(j);
        CHECK(swapped[i][j] == !before[i][j]);
        if (!before[i][j]) ++unordered;
      }
    }
  }
  CHECK(unordered > 1000);
}

TEST_CASE("a wait means the record last issued before it, whatever is recorded later") {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Shuffled s(seed);
    s.device->wait(compute, 5);  // never recorded: no wait
    s.work(gather, 'a');
    s.device->record(gather, 5);
    s.device->wait(compute, 5);
    s.work(compute, 'b');
    s.device->record(compute, 6);
    s.device->wait(gather, 6);  // would never end if it waited for compute's record below
    s.work(gather, 'c');
    s.device->record(gather, 5);
    s.device->wait(reduce, 5);
    s.work(reduce, 'd');
    s.device->record(copy, 5);  // replaces the record and orders nothing else
    s.device->wait(copy, 5);
    s.work(copy, 'e');
    s.device->drain();
    CHECK(std::erase(s.order, 'e') == 1);
    CHECK(s.order == "abcd");
  }
}

TEST_CASE("what nobody waited for is dropped with the device") {
  int ran = 0;
  {
    const auto cpu = cpu_device(1);
    const auto device = shuffling(*cpu, 11);
    device->seal();
    device->enqueue(compute, [&] { ++ran; });
  }
  CHECK(ran == 0);
}

TEST_CASE("an error of a command comes out of the wait that ran it, and the rest goes on") {
  Shuffled s(3);
  s.device->enqueue(compute, [] { throw Error(ExitCode::nan, "work", "failed"); });
  s.work(compute, 'a');
  s.device->record(compute, 1);
  CHECK_THROWS_WITH_AS(s.device->host_wait(1), "work: failed", Error);
  s.device->host_wait(1);
  CHECK(s.order == "a");
}

TEST_CASE("work that waits for what comes after it is a fault that names what each stream does") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    Shuffled s(seed);
    std::string text;
    s.device->enqueue(
        gather, [&] { text = message([&] { s.device->host_wait(1); }); }, "all_gather");
    s.device->record(gather, 1);
    s.device->wait(compute, 1);
    s.work(compute, 'a');
    s.device->drain();
    CHECK(text.find("gather is in the middle of all_gather") != std::string::npos);
    if (seed != 8) CHECK(text.find("compute waits for event 1 of gather") != std::string::npos);
    CHECK(s.order == "a");
  }
}

TEST_CASE("a training without faults has the same bits in every order") {
  const TrainingOutcome plain =
      run_training([](Device& cpu) -> Device& { return cpu; }, nullptr, kNone);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    CHECK(shuffled_training(seed, kNone).read == plain.read);
  }
  for (int wait = 0; wait < plain.waits; ++wait) {
    CAPTURE(wait);
    std::uint64_t seed = 0;
    while (seed < kSeeds && shuffled_training(seed, wait).read == plain.read) ++seed;
    CHECK(seed < kSeeds);
  }
}

TEST_CASE("tracing around shuffling sees the order of issue") {
  for (std::uint64_t seed = 0; seed < kSeeds; seed += 7) {
    CAPTURE(seed);
    Trace trace;
    std::unique_ptr<Shuffling> inner;
    std::unique_ptr<Device> outer;
    const auto around = [&](Device& cpu) -> Device& {
      inner = shuffling(cpu, seed);
      outer = tracing(*inner, trace);
      return *outer;
    };
    run_training(around, &trace, kNone);
    CHECK(trace.text() == "");
  }
}
