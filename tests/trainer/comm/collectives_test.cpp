// SPDX-License-Identifier: Apache-2.0
// The contract of every communicator: what collectives leave in memory, checked against plain
// loops.
#include <doctest/doctest.h>
#include <malloc.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/allocator_interface.h>
#endif

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/trainer/comm/heap.h"
#include "tests/trainer/comm/ranks.h"
#include "tests/trainer/comm/values.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

// Sizes of a shard: one element, less than a cache line, around a block of the sum, many.
constexpr std::int64_t kSizes[] = {1, 3, 7, 64, 2047, 2049, 50'021};
constexpr int kMostRanks = 4;

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

Flat numbers(DType dtype, std::int64_t elements, int rank) {
  Flat flat(dtype, elements);
  for (std::int64_t i = 0; i < elements; ++i) flat.set(i, number(index(rank), i));
  return flat;
}

std::vector<Flat> numbers_of_ranks(DType dtype, std::int64_t elements, int ranks) {
  std::vector<Flat> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(numbers(dtype, elements, rank));
  return result;
}

Flat sums(DType dtype, const std::vector<Flat>& terms, std::int64_t first, std::int64_t elements) {
  Flat result(dtype, elements);
  for (std::int64_t i = 0; i < elements; ++i) {
    std::vector<double> values;
    for (const Flat& term : terms) values.push_back(term.at(first + i));
    result.set(i, sum_in_order(dtype, values));
  }
  return result;
}

// Calls f(ranks, dtype, elements, kind) for all combinations.
void for_all(const std::vector<DType>& dtypes,
             const std::function<void(int, DType, std::int64_t, Communicators)>& f) {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (const DType dtype : dtypes) {
      for (const std::int64_t elements : kSizes) {
        for (Kind& kind : kinds(ranks)) {
          // Over Gloo these sizes behave like their neighbours, and a meeting takes a while.
          if (kind.name == "Gloo" && (elements == 3 || elements == 7 || elements == 2047)) continue;
          CAPTURE(kind.name);
          CAPTURE(ranks);
          CAPTURE(std::string(name_of(dtype)));
          CAPTURE(elements);
          f(ranks, dtype, elements, std::move(kind.communicators));
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("all_gather puts the shards of all ranks in rank order on every rank") {
  for_all({DType::f32, DType::bf16},
          [](int ranks, DType dtype, std::int64_t elements, Communicators communicators) {
            std::vector<Flat> shards = numbers_of_ranks(dtype, elements, ranks);
            std::vector<Flat> full(index(ranks), Flat(dtype, elements * ranks));
            std::string all;
            for (const Flat& shard : shards) all += shard.bytes();
            run_prepared(std::move(communicators), [&](Communicator& communicator) {
              const std::size_t rank = index(communicator.rank());
              communicator.all_gather(Stream::gather, shards[rank].tensor(), full[rank].tensor());
            });
            for (int rank = 0; rank < ranks; ++rank) {
              CHECK((full[index(rank)].bytes() == all));
              CHECK(full[index(rank)].guards_are_whole());
              CHECK((shards[index(rank)].bytes() == numbers(dtype, elements, rank).bytes()));
            }
          });
}

TEST_CASE("all_gather works where each shard is its own slice of full") {
  for_all({DType::f32, DType::bf16}, [](int ranks, DType dtype, std::int64_t elements,
                                        Communicators communicators) {
    std::vector<Flat> full(index(ranks), Flat(dtype, elements * ranks));
    std::string all;
    for (int rank = 0; rank < ranks; ++rank) {
      const Flat shard = numbers(dtype, elements, rank);
      all += shard.bytes();
      for (std::int64_t i = 0; i < elements; ++i) {
        full[index(rank)].set(rank * elements + i, shard.at(i));
      }
    }
    run_prepared(std::move(communicators), [&](Communicator& communicator) {
      const int rank = communicator.rank();
      Flat& mine = full[index(rank)];
      communicator.all_gather(Stream::gather, mine.slice(rank * elements, elements), mine.tensor());
    });
    for (const Flat& each : full) {
      CHECK((each.bytes() == all));
      CHECK(each.guards_are_whole());
    }
  });
}

TEST_CASE("reduce_scatter_sum gives each rank its slice of the sum in rank order") {
  for_all({DType::f32, DType::bf16}, [](int ranks, DType dtype, std::int64_t elements,
                                        Communicators communicators) {
    const std::vector<Flat> before = numbers_of_ranks(dtype, elements * ranks, ranks);
    std::vector<Flat> full = before;
    std::vector<Flat> shards(index(ranks), Flat(dtype, elements));
    run_prepared(std::move(communicators), [&](Communicator& communicator) {
      const std::size_t rank = index(communicator.rank());
      communicator.reduce_scatter_sum(Stream::reduce, full[rank].tensor(), shards[rank].tensor());
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const Flat& shard = shards[index(rank)];
      CHECK((shard.bytes() == sums(dtype, before, rank * elements, elements).bytes()));
      CHECK(shard.guards_are_whole());
      CHECK((full[index(rank)].bytes() == before[index(rank)].bytes()));
    }
  });
}

TEST_CASE("reduce_scatter_sum works where each shard is its own slice of full") {
  for_all({DType::f32, DType::bf16},
          [](int ranks, DType dtype, std::int64_t elements, Communicators communicators) {
            const std::vector<Flat> before = numbers_of_ranks(dtype, elements * ranks, ranks);
            std::vector<Flat> full = before;
            run_prepared(std::move(communicators), [&](Communicator& communicator) {
              const int rank = communicator.rank();
              Flat& mine = full[index(rank)];
              communicator.reduce_scatter_sum(Stream::reduce, mine.tensor(),
                                              mine.slice(rank * elements, elements));
            });
            for (int rank = 0; rank < ranks; ++rank) {
              Flat expected = before[index(rank)];
              const Flat sum = sums(dtype, before, rank * elements, elements);
              for (std::int64_t i = 0; i < elements; ++i)
                expected.set(rank * elements + i, sum.at(i));
              CHECK((full[index(rank)].bytes() == expected.bytes()));
              CHECK(full[index(rank)].guards_are_whole());
            }
          });
}

TEST_CASE("all_reduce_sum leaves the bits of the sum in rank order on every rank") {
  for_all({DType::f32, DType::bf16, DType::f64}, [](int ranks, DType dtype, std::int64_t elements,
                                                    Communicators communicators) {
    const std::vector<Flat> before = numbers_of_ranks(dtype, elements, ranks);
    std::vector<Flat> tensors = before;
    run_prepared(std::move(communicators), [&](Communicator& communicator) {
      communicator.all_reduce_sum(Stream::reduce, tensors[index(communicator.rank())].tensor());
    });
    const Flat expected = sums(dtype, before, 0, elements);
    for (const Flat& tensor : tensors) {
      CHECK((tensor.bytes() == expected.bytes()));
      CHECK(tensor.guards_are_whole());
    }
  });
}

TEST_CASE("the numbers of these tests tell orders of summation apart") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    CAPTURE(std::string(name_of(dtype)));
    const std::vector<Flat> terms = numbers_of_ranks(dtype, 2049, 3);
    int differing = 0;
    for (std::int64_t i = 0; i < 2049; ++i) {
      const double a = terms[0].at(i);
      const double b = terms[1].at(i);
      const double c = terms[2].at(i);
      if (sum_in_order(dtype, {a, b, c}) != sum_in_order(dtype, {b, c, a})) ++differing;
    }
    CHECK(differing > (dtype == DType::bf16 ? 0 : 200));
  }
}

TEST_CASE("a rank knows its number and the size of its group") {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (const Kind& kind : kinds(ranks)) {
      REQUIRE(kind.communicators.size() == index(ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(kind.communicators[index(rank)]->rank() == rank);
        CHECK(kind.communicators[index(rank)]->size() == ranks);
      }
    }
  }
}

TEST_CASE("thousands of collectives in a row keep their order") {
  constexpr std::int64_t kRounds = 4000;
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (Kind& kind : kinds(ranks)) {
      CAPTURE(kind.name);
      CAPTURE(ranks);
      std::atomic<std::int64_t> wrong{0};
      // Sums of whole numbers are exact in any order. Rank r holds r + round + i at element i.
      run_prepared(std::move(kind.communicators), [&](Communicator& communicator) {
        const int rank = communicator.rank();
        const double sum_of_ranks = ranks * (ranks - 1) / 2.0;
        const auto value = [](std::int64_t r, std::int64_t round, std::int64_t i) {
          return static_cast<double>(r + round + i);
        };
        for (std::int64_t round = 0; round < kRounds; ++round) {
          const std::int64_t elements = 1 + round % 5;
          const auto sum = [&](std::int64_t i) {
            return sum_of_ranks + ranks * static_cast<double>(round + i);
          };
          const auto expect = [&](bool holds) { wrong += holds ? 0 : 1; };
          Flat full(DType::f32, elements * ranks);
          Flat shard(DType::f32, elements);
          switch (round * 7 % 3) {
            case 0:
              for (std::int64_t i = 0; i < elements; ++i) shard.set(i, value(rank, round, i));
              communicator.all_gather(Stream::gather, shard.tensor(), full.tensor());
              for (std::int64_t i = 0; i < elements * ranks; ++i) {
                expect(full.at(i) == value(i / elements, round, i % elements));
              }
              break;
            case 1:
              for (std::int64_t i = 0; i < elements * ranks; ++i) {
                full.set(i, value(rank, round, i));
              }
              communicator.reduce_scatter_sum(Stream::reduce, full.tensor(), shard.tensor());
              for (std::int64_t i = 0; i < elements; ++i) {
                expect(shard.at(i) == sum(rank * elements + i));
              }
              break;
            default:
              for (std::int64_t i = 0; i < elements; ++i) shard.set(i, value(rank, round, i));
              communicator.all_reduce_sum(Stream::reduce, shard.tensor());
              for (std::int64_t i = 0; i < elements; ++i) expect(shard.at(i) == sum(i));
          }
        }
      });
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("two communicators of the same threads are two queues") {
  constexpr int kRanks = 3;
  Communicators others = std::move(kinds(kRanks).back().communicators);
  std::vector<double> results(index(kRanks));
  run_prepared(std::move(kinds(kRanks).back().communicators), [&](Communicator& communicator) {
    const std::size_t rank = index(communicator.rank());
    Communicator& other = *others[rank];
    other.prepare({});
    Flat a = Flat::of(DType::f32, {1.0 + static_cast<double>(rank)});
    Flat b = Flat::of(DType::f64, {10});
    communicator.all_reduce_sum(Stream::reduce, a.tensor());
    other.all_reduce_sum(Stream::reduce, b.tensor());
    results[rank] = a.at(0) + b.at(0);
  });
  CHECK(results == std::vector<double>{36, 36, 36});
}

TEST_CASE("collectives take nothing from the heap once the communicator is prepared") {
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    for (Kind& kind : kinds(ranks)) {
      if (kind.name == "Gloo") continue;  // the next test has Gloo
      CAPTURE(kind.name);
      CAPTURE(ranks);
      std::atomic<long> taken{-1};
      run_prepared(std::move(kind.communicators), [&](Communicator& communicator) {
        constexpr std::int64_t kElements = 5000;
        Flat shard(DType::bf16, kElements);
        Flat full(DType::bf16, kElements * ranks);
        Flat squares(DType::f64, 1);
        squares.set(0, 1);
        // Between the first and the last meeting no rank does anything but collectives.
        communicator.all_reduce_sum(Stream::reduce, squares.tensor());
        const long before = allocations();
        for (int round = 0; round < 3; ++round) {
          communicator.all_gather(Stream::gather, shard.tensor(), full.tensor());
          communicator.reduce_scatter_sum(Stream::reduce, full.tensor(), shard.tensor());
          communicator.all_reduce_sum(Stream::reduce, full.tensor());
          if (communicator.poll()) return;
        }
        if (communicator.rank() == 0) taken = allocations() - before;
        communicator.all_reduce_sum(Stream::reduce, squares.tensor());
      });
      CHECK(taken == 0);
    }
  }
}

TEST_CASE("what Gloo takes from the heap for a collective it gives back") {
  for (const int ranks : {2, 3}) {
    for (Kind& kind : kinds(ranks)) {
      if (kind.name != "Gloo") continue;
      std::atomic<long> grown{-1};
      run_prepared(std::move(kind.communicators), [&](Communicator& communicator) {
        constexpr std::int64_t kElements = 5000;
        Flat shard(DType::bf16, kElements);
        Flat full(DType::bf16, kElements * ranks);
        const auto round = [&] {
          communicator.all_gather(Stream::gather, shard.tensor(), full.tensor());
          communicator.reduce_scatter_sum(Stream::reduce, full.tensor(), shard.tensor());
          communicator.all_reduce_sum(Stream::reduce, full.tensor());
        };
        const auto used = [] {
#ifdef __SANITIZE_ADDRESS__
          return static_cast<long>(__sanitizer_get_current_allocated_bytes());
#else
          return static_cast<long>(::mallinfo2().uordblks);
#endif
        };
        for (int i = 0; i < 50; ++i) round();
        const long before = used();
        for (int i = 0; i < 1000; ++i) round();
        if (communicator.rank() == 0) grown = used() - before;
        round();
      });
      // If a message took some hundred bytes, 3,000 collectives would take a megabyte.
      CHECK(grown < 100'000);
    }
  }
}
