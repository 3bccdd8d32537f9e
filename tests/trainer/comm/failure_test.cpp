// SPDX-License-Identifier: Apache-2.0
// Whatever goes wrong between ranks ends in one clear error on each of them, never in a hang:
// run_ranks ends the program if a rank does not end.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/trainer/comm/ranks.h"
#include "tests/trainer/comm/threads.h"
#include "tests/trainer/comm/values.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using Body = std::function<void(Communicator&)>;
using Check = std::function<void(const std::vector<Outcome>&)>;

// Runs body(communicator) on all ranks and checks how they ended, for each implementation.
void run_all(int ranks, const Body& body, const Check& check) {
  for (Kind& kind : kinds(ranks)) {
    CAPTURE(kind.name);
    check(run_ranks(std::move(kind.communicators), body));
  }
}

// Runs calls[r](communicator) on rank r, after prepare.
void run_each(const std::vector<Body>& calls, const Check& check) {
  run_all(
      static_cast<int>(calls.size()),
      [&](Communicator& communicator) {
        communicator.prepare({});
        calls[static_cast<std::size_t>(communicator.rank())](communicator);
      },
      check);
}

Body all_reduce(DType dtype, std::int64_t elements) {
  return [=](Communicator& communicator) {
    Flat flat(dtype, elements);
    communicator.all_reduce_sum(Stream::reduce, flat.tensor());
  };
}

Body all_gather(DType dtype, std::int64_t elements) {
  return [=](Communicator& communicator) {
    Flat shard(dtype, elements);
    Flat full(dtype, elements * communicator.size());
    communicator.all_gather(Stream::gather, shard.tensor(), full.tensor());
  };
}

Body reduce_scatter(DType dtype, std::int64_t elements) {
  return [=](Communicator& communicator) {
    Flat shard(dtype, elements);
    Flat full(dtype, elements * communicator.size());
    communicator.reduce_scatter_sum(Stream::reduce, full.tensor(), shard.tensor());
  };
}

void abort_rank(Communicator& communicator) {
  communicator.abort();
}

void die(Communicator& /*communicator*/) {
  throw std::runtime_error("out of luck");
}

// Returns the Error of f, or {} if there is none.
Outcome outcome_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {};
}

void check_all(const std::vector<Outcome>& outcomes, const std::string& message) {
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == ExitCode::comm_error);
    CHECK_MESSAGE(contains(outcome.message, message), outcome.message);
  }
}

void check_each(const std::vector<Body>& calls, const std::string& message) {
  run_each(calls, [&](const std::vector<Outcome>& outcomes) { check_all(outcomes, message); });
}

// Waits until poll reports something: news of another rank may take a moment.
std::string poll_until_told(Communicator& communicator) {
  for (int i = 0; i < 10'000; ++i) {
    if (const auto told = communicator.poll()) return *told;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return "nothing";
}

}  // namespace

TEST_CASE("ranks that call different collectives are told who called what") {
  run_each({all_gather(DType::f32, 8), all_reduce(DType::f32, 8), all_gather(DType::f32, 8)},
           [](const std::vector<Outcome>& outcomes) {
             check_all(outcomes,
                       "ranks called different collectives; ranks 0, 2 in all_gather of 8 f32 a "
                       "rank; rank 1 in all_reduce_sum of 8 f32; every rank must make the same "
                       "calls in the same order");
             CHECK(outcomes[0].message.starts_with("all_gather: "));
             CHECK(outcomes[1].message.starts_with("all_reduce_sum: "));
           });
}

TEST_CASE("another size or dtype on one rank is a mismatch") {
  check_each({all_reduce(DType::f32, 8), all_reduce(DType::f32, 9)},
             "rank 0 in all_reduce_sum of 8 f32; rank 1 in all_reduce_sum of 9 f32");
  check_each({all_gather(DType::f32, 8), all_gather(DType::bf16, 8)},
             "rank 0 in all_gather of 8 f32 a rank; rank 1 in all_gather of 8 bf16 a rank");
  check_each(
      {reduce_scatter(DType::bf16, 4), reduce_scatter(DType::bf16, 2)},
      "rank 0 in reduce_scatter_sum of 4 bf16 a rank; rank 1 in reduce_scatter_sum of 2 bf16 a "
      "rank");
  check_each({all_gather(DType::f32, 8), reduce_scatter(DType::f32, 8)},
             "rank 0 in all_gather of 8 f32 a rank; rank 1 in reduce_scatter_sum of 8 f32 a rank");
  check_each({all_reduce(DType::f64, 1), all_reduce(DType::f32, 1)},
             "rank 0 in all_reduce_sum of 1 f64; rank 1 in all_reduce_sum of 1 f32");
}

TEST_CASE("prepare is a collective too: other memory, or another collective meanwhile") {
  std::array<std::byte, 96> memory{};
  run_all(
      2,
      [&](Communicator& communicator) {
        const std::span<std::byte> all(memory);
        const std::size_t half = communicator.rank() == 0 ? 32 : 48;
        const std::array parts{all.first(half), all.subspan(half)};
        communicator.prepare(parts);
      },
      [](const std::vector<Outcome>& outcomes) {
        check_all(outcomes,
                  "rank 0 in prepare with 32 + 64 bytes; rank 1 in prepare with 48 + 48 bytes");
      });
}

TEST_CASE("memory of the same sizes on every rank can be registered") {
  std::array<std::array<std::byte, 64>, 2> memory{};
  run_all(
      2,
      [&](Communicator& communicator) {
        const std::array parts{
            std::span<std::byte>(memory[static_cast<std::size_t>(communicator.rank())])};
        communicator.prepare(parts);
        all_reduce(DType::f32, 3)(communicator);
      },
      [](const std::vector<Outcome>& outcomes) {
        for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
      });
}

TEST_CASE("after a failure every call throws it again, and poll tells it") {
  const auto body = [](Communicator& communicator) {
    communicator.prepare({});
    if (communicator.poll()) throw std::runtime_error("poll before any failure");
    const auto wrong =
        communicator.rank() == 0 ? all_reduce(DType::f32, 1) : all_reduce(DType::bf16, 1);
    const Outcome first = outcome_of([&] { wrong(communicator); });
    const Outcome second = outcome_of([&] { all_reduce(DType::f32, 1)(communicator); });
    if (first.code != ExitCode::comm_error) throw std::runtime_error("no failure");
    if (first.message != second.message) throw std::runtime_error("another: " + second.message);
    const std::string told = communicator.poll().value_or("nothing");
    if (!contains(told, "rank 1 in all_reduce_sum of 1 bf16")) throw std::runtime_error(told);
  };
  run_all(2, body, [](const std::vector<Outcome>& outcomes) {
    for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
  });
}

TEST_CASE("an abort before the others come fails their next call, naming the rank") {
  const auto body = [](Communicator& communicator) {
    communicator.prepare({});
    if (communicator.rank() == 2) {
      communicator.abort();
    } else if (const std::string told = poll_until_told(communicator);
               !contains(told, "rank 2 has aborted")) {
      throw std::runtime_error("poll tells " + told);
    }
    all_gather(DType::f32, 5)(communicator);
  };
  run_all(3, body, [](const std::vector<Outcome>& outcomes) {
    for (const Outcome& outcome : outcomes) {
      CHECK(outcome.code == ExitCode::comm_error);
      CHECK(outcome.message.starts_with("all_gather: rank 2 has aborted; "));
      CHECK(outcome.message.ends_with("; the messages of rank 2 say why"));
    }
  });
}

TEST_CASE("an abort releases ranks that wait for it") {
  // No rank can see that others wait, so the abort comes later each time, until the error says that
  // both waited.
  int all_waited = 0;  // implementations where both did
  int implementations = 0;
  for (int round = 0; round < 2000 && (round == 0 || all_waited < implementations); ++round) {
    implementations = 0;
    all_waited = 0;
    const auto late_abort = [round](Communicator& communicator) {
      for (int i = 0; i < round * 5; ++i) std::this_thread::yield();
      communicator.abort();
    };
    run_each({all_reduce(DType::f32, 5), all_reduce(DType::f32, 5), late_abort},
             [&](const std::vector<Outcome>& outcomes) {
               for (const std::size_t rank : {0U, 1U}) {
                 REQUIRE(outcomes[rank].code == ExitCode::comm_error);
                 REQUIRE_MESSAGE(contains(outcomes[rank].message, "rank 2 has aborted"),
                                 outcomes[rank].message);
               }
               CHECK(outcomes[2].message == "");
               ++implementations;
               const bool both_waited =
                   outcomes[0].message ==
                   "all_reduce_sum: rank 2 has aborted; ranks 0, 1 in all_reduce_sum of 5 f32; "
                   "the messages of rank 2 say why";
               all_waited += both_waited ? 1 : 0;
             });
  }
  CHECK(all_waited == implementations);
}

TEST_CASE("an abort of one of many is the failure that all are told") {
  for (int round = 0; round < 50; ++round) {
    run_each({all_reduce(DType::f32, 5), all_reduce(DType::f32, 5), all_reduce(DType::f32, 5),
              abort_rank},
             [](const std::vector<Outcome>& outcomes) {
               for (std::size_t rank = 0; rank < 3; ++rank) {
                 CHECK(outcomes[rank].code == ExitCode::comm_error);
                 CHECK_MESSAGE(contains(outcomes[rank].message, "rank 3 has aborted"),
                               outcomes[rank].message);
               }
             });
  }
}

TEST_CASE("a rank that dies by an exception releases the others, naming it") {
  for (int round = 0; round < 50; ++round) {
    run_each({all_gather(DType::bf16, 5), die, all_gather(DType::bf16, 5)},
             [](const std::vector<Outcome>& outcomes) {
               CHECK(outcomes[1].message == "out of luck");
               for (const std::size_t rank : {0U, 2U}) {
                 CHECK(outcomes[rank].code == ExitCode::comm_error);
                 CHECK_MESSAGE(contains(outcomes[rank].message, "rank 1 has aborted"),
                               outcomes[rank].message);
               }
             });
  }
}

TEST_CASE("a rank that never comes to prepare releases the others") {
  run_all(
      3,
      [](Communicator& communicator) {
        if (communicator.rank() == 0) throw std::runtime_error("no device");
        communicator.prepare({});
      },
      [](const std::vector<Outcome>& outcomes) {
        for (const std::size_t rank : {1U, 2U}) {
          CHECK(outcomes[rank].code == ExitCode::comm_error);
          CHECK_MESSAGE(contains(outcomes[rank].message, "prepare: rank 0 has aborted"),
                        outcomes[rank].message);
        }
      });
}

TEST_CASE("a rank that ends is no failure until another one calls or waits") {
  for (Kind& kind : kinds(2)) {
    CAPTURE(kind.name);
    std::latch ended(1);
    std::unique_ptr<Communicator> late = std::move(kind.communicators[1]);
    kind.communicators.pop_back();
    Outcome outcome;
    std::thread second([&] {
      late->prepare({});
      ended.wait();
      if (late->poll()) outcome.message = "poll tells " + *late->poll();
      late.reset();
    });
    const auto outcomes = run_ranks(std::move(kind.communicators),
                                    [](Communicator& communicator) { communicator.prepare({}); });
    CHECK(outcomes[0].message == "");
    ended.count_down();
    second.join();
    CHECK(outcome.message == "");
  }

  run_each({all_reduce(DType::f32, 2), [](Communicator&) {}},
           [](const std::vector<Outcome>& outcomes) {
             CHECK(outcomes[0].code == ExitCode::comm_error);
             CHECK_MESSAGE(outcomes[0].message ==
                               "all_reduce_sum: rank 1 has ended; rank 0 in all_reduce_sum of 2 "
                               "f32; the messages of rank 1 say why",
                           outcomes[0].message);
             CHECK(outcomes[1].message == "");
           });
}

TEST_CASE("a communicator that is destroyed unused releases the others") {
  for (Kind& kind : kinds(3)) {
    CAPTURE(kind.name);
    kind.communicators.erase(kind.communicators.begin() + 1);
    const auto outcomes = run_ranks(std::move(kind.communicators),
                                    [](Communicator& communicator) { communicator.prepare({}); });
    check_all(outcomes, "prepare: rank 1 has ended");
  }
}

TEST_CASE("no rank touches the memory of one that failed") {
  // Each rank frees its memory as soon as a collective throws, while others may still be leaving
  // theirs: the sanitizers check it at many moments.
  for (int round = 0; round < 200; round += 3) {
    const auto body = [&](Communicator& communicator) {
      communicator.prepare({});
      for (int call = 0;; ++call) {
        if (communicator.rank() == round % 4 && call == round / 10) {
          if (round % 2 == 0) throw std::runtime_error("dead");
          return communicator.abort();
        }
        all_reduce(DType::f32, 300)(communicator);
        all_gather(DType::bf16, 100)(communicator);
      }
    };
    run_all(4, body, [&](const std::vector<Outcome>& outcomes) {
      for (int rank = 0; rank < 4; ++rank) {
        if (rank == round % 4) continue;
        const std::string& message = outcomes[static_cast<std::size_t>(rank)].message;
        CHECK_MESSAGE(contains(message, "rank " + std::to_string(round % 4) + " has aborted"),
                      message);
      }
    });
  }
}

TEST_CASE("a call that is wrong by itself is an internal error on that rank") {
  for (Kind& kind : kinds(1)) {
    CAPTURE(kind.name);
    Communicator& communicator = *kind.communicators[0];
    Flat f32(DType::f32, 8);
    Flat bf16(DType::bf16, 8);
    Flat f64(DType::f64, 8);
    const auto check = [](const std::function<void()>& f, const std::string& message) {
      const Outcome outcome = outcome_of(f);
      CHECK(outcome.code == ExitCode::internal);
      CHECK(outcome.message == message);
    };
    const auto reduce = [&](const Tensor& tensor) {
      return [&, tensor] { communicator.all_reduce_sum(Stream::reduce, tensor); };
    };
    const auto gather = [&](const Tensor& shard, const Tensor& full) {
      return [&, shard, full] { communicator.all_gather(Stream::gather, shard, full); };
    };
    const auto scatter = [&](const Tensor& full, const Tensor& shard) {
      return [&, shard, full] { communicator.reduce_scatter_sum(Stream::reduce, full, shard); };
    };
    check(reduce(f32.tensor()), "all_reduce_sum: comes before prepare");
    communicator.prepare({});
    check([&] { communicator.prepare({}); }, "prepare: was called before");
    check(reduce({}), "all_reduce_sum: tensor is missing");
    check(reduce({f32.tensor().data, DType::i32, 1, 8, 8}),
          "all_reduce_sum: tensor is i32, not one of f32, bf16, f64");
    check(reduce({f32.tensor().data, DType::f32, 2, 4, 4}),
          "all_reduce_sum: tensor is [2, 4], not [1, n]");
    check(reduce({f32.tensor().data, DType::f32, 1, 0, 0}),
          "all_reduce_sum: tensor is [1, 0], not [1, n]");
    check(reduce({static_cast<std::byte*>(f32.tensor().data) + 1, DType::f32, 1, 4, 4}),
          "all_reduce_sum: tensor is not aligned to its dtype");
    check(gather(f64.slice(0, 4), f64.slice(4, 4)),
          "all_gather: shard is f64, not one of f32, bf16");
    check(gather(f32.tensor(), bf16.tensor()), "all_gather: shard is f32, full is bf16");
    check(gather(f32.slice(0, 2), f32.slice(2, 3)),
          "all_gather: full has 3 elements, not 1 shards of 2");
    check(scatter(f32.slice(0, 4), f32.slice(3, 4)),
          "reduce_scatter_sum: shard overlaps full elsewhere than in slice 0");
    // None of these is a failure of the group.
    CHECK_FALSE(communicator.poll().has_value());
    CHECK(outcome_of(reduce(f64.tensor())).message == "");
  }
}

TEST_CASE("a shard that is another rank's slice of full is refused, and the others released") {
  const auto shifted = [](Communicator& communicator) {
    Flat full(DType::f32, 8);
    const std::int64_t slice = communicator.rank() == 0 ? 0 : communicator.rank() - 1;
    communicator.all_gather(Stream::gather, full.slice(slice * 4, 4), full.tensor());
  };
  run_each({shifted, shifted}, [](const std::vector<Outcome>& outcomes) {
    CHECK(outcomes[1].code == ExitCode::internal);
    CHECK(outcomes[1].message == "all_gather: shard overlaps full elsewhere than in slice 1");
    CHECK(outcomes[0].code == ExitCode::comm_error);
    CHECK(contains(outcomes[0].message, "rank 1 has aborted"));
  });
}

TEST_CASE("a collective from another thread than prepare is refused") {
  run_each({all_reduce(DType::f32, 1),
            [](Communicator& communicator) {
              Outcome outcome;
              std::thread([&] {
                outcome = outcome_of([&] { all_reduce(DType::f32, 1)(communicator); });
              }).join();
              if (outcome.code != ExitCode::internal) throw std::runtime_error("no error");
              all_reduce(DType::f32, 1)(communicator);
              throw std::runtime_error(outcome.message);
            }},
           [](const std::vector<Outcome>& outcomes) {
             CHECK(outcomes[0].message == "");
             CHECK(outcomes[1].message == "all_reduce_sum: comes from another thread than prepare");
           });
}

TEST_CASE("one rank alone ends with its own abort") {
  for (Kind& kind : kinds(1)) {
    CAPTURE(kind.name);
    Communicator& communicator = *kind.communicators[0];
    communicator.prepare({});
    communicator.abort();
    CHECK(contains(communicator.poll().value_or(""), "rank 0 has aborted"));
    CHECK(outcome_of([&] { all_reduce(DType::f32, 1)(communicator); }).code ==
          ExitCode::comm_error);
  }
}

TEST_CASE("a group has one rank or more") {
  CHECK_THROWS_WITH(threads_communicators(0), "threads_communicators: 0 ranks");
}
