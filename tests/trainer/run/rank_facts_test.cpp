// SPDX-License-Identifier: Apache-2.0
// The facts that ranks exchange, and the decisions that follow from them.
#include <doctest/doctest.h>

#include <thread>

#include "lib/base/process.h"
#include "tests/trainer/comm/meeting.h"
#include "tests/trainer/run/program.h"
#include "tests/trainer/train/ranks.h"
#include "trainer/run/ranks.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

RankFacts facts(const std::string& host, int node, const std::string& cpus = "0-7") {
  return {.host = host,
          .node = node,
          .device = "Some CPU",
          .memory_bytes = 64'000,
          .cpus = cpus,
          .software = "0.1.0 abc",
          .spec_crc32 = 7};
}

std::string refusal(const std::vector<RankFacts>& ranks) {
  try {
    require_alike(ranks);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::spec);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("ranks exchange their facts in rank order") {
  const auto meeting = std::make_shared<Meeting>();
  std::vector<RankFacts> sent{facts("a", 0), facts("b\n\"", 1, "")};
  sent[1].addresses = {"10.0.0.1", "fd00::1"};
  std::vector<std::vector<RankFacts>> seen(2);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      MeetingStore store(meeting, rank);
      seen[static_cast<std::size_t>(rank)] =
          exchange_facts(&store, {.rank = rank, .ranks = 2}, sent[static_cast<std::size_t>(rank)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(seen[0] == sent);
  CHECK(seen[1] == sent);
  CHECK(exchange_facts(nullptr, {}, sent[0]) == std::vector<RankFacts>{sent[0]});
}

TEST_CASE("facts of this process are those of this machine") {
  const sweep::RunSpec spec = small_spec("");
  const auto nothing = [](const std::string&) { return std::optional<std::string>(); };
  const RankFacts own = facts_of(spec, {}, "CPU", 5, nothing);
  CHECK(own.host == host_name());
  CHECK(own.addresses.empty());
  CHECK_FALSE(own.cpus.empty());
  sweep::RunSpec other = spec;
  other.point.seed = 18;
  CHECK(facts_of(other, {}, "CPU", 5, nothing).spec_crc32 != own.spec_crc32);
  const RankFacts far = facts_of(spec, {.ranks = 2, .nodes = 2}, "CPU", 5, nothing);
  CHECK_FALSE(far.addresses.empty());
}

TEST_CASE("ranks of another trainer, specification or device do not train together") {
  std::vector<RankFacts> ranks{facts("a", 0), facts("b", 1)};
  CHECK(refusal(ranks) == "");
  ranks[1].software = "0.2.0 abc";
  CHECK(refusal(ranks) ==
        "rank 1 on b: is trainer 0.2.0 abc, rank 0 is 0.1.0 abc; start the same program "
        "everywhere");
  ranks[1] = facts("b", 1);
  ranks[1].spec_crc32 = 8;
  CHECK(refusal(ranks) ==
        "rank 1 on b: has another run specification than rank 0; give all ranks the same one");
  ranks[1] = facts("b", 1);
  ranks[1].device = "Other CPU";
  CHECK(refusal(ranks).starts_with("rank 1 on b: has Other CPU, rank 0 has Some CPU; "));
}

TEST_CASE("ranks that may use the same CPUs and memory share them") {
  const int all = usable_cpus();
  CHECK(cpus_of({facts("a", 0)}, 0) == all);
  CHECK(cpus_of({facts("a", 0), facts("a", 0), facts("b", 1)}, 1) == std::max(1, all / 2));
  CHECK(cpus_of({facts("a", 0), facts("a", 0), facts("b", 1)}, 2) == all);
  // The scheduler has bound the ranks to CPUs.
  CHECK(cpus_of({facts("a", 0, "0-3"), facts("a", 0, "4-7")}, 0) == all);

  CHECK(memory_of_rank({facts("a", 0)}) == 64'000);
  CHECK(memory_of_rank({facts("a", 0), facts("b", 1)}) == 64'000);
  CHECK(memory_of_rank({facts("b", 1), facts("a", 0), facts("a", 0)}) == 32'000);
  RankFacts small = facts("c", 2);
  small.memory_bytes = 10'000;
  CHECK(memory_of_rank({facts("a", 0), facts("a", 0), small}) == 10'000);
  small.memory_bytes = 0;
  CHECK(memory_of_rank({facts("a", 0), small}) == 0);
}

TEST_CASE("a rank listens where ranks of another node reach it") {
  RankFacts here = facts("a", 0);
  CHECK(host_of({here, here}, 1) == "127.0.0.1");
  here.addresses = {"192.0.2.77", "127.0.0.1"};
  RankFacts there = facts("b", 1);
  // 127.0.0.1 reaches all of 127.0.0.0/8. An address that both machines have says nothing.
  there.addresses = {"192.0.2.77", "127.0.0.9"};
  CHECK(host_of({here, there}, 0) == "127.0.0.1");
  there.addresses = {"no address"};
  CHECK(host_of({here, there}, 0) == "192.0.2.77");
}

TEST_CASE("a run's figures are those of its slowest rank") {
  on_ranks(3, [](int rank, Communicator& communicator) {
    communicator.prepare({});
    const RankFigures worst =
        worst_of(communicator, {.measured_s = 1.5 + rank,
                                .median_s = 0.3 - 0.1 * rank,
                                .data_wait_s = rank == 1 ? 0.25 : 0,
                                .startup_s = 2,
                                .mem_peak_bytes = 1e12 + rank,
                                .cpu_share = rank == 2 ? 2 : 0.5 + rank / 4.0});
    if (worst.measured_s != 3.5 || worst.median_s != 0.3 || worst.data_wait_s != 0.25 ||
        worst.startup_s != 2 || worst.mem_peak_bytes != 1e12 + 2 || worst.cpu_share != 0.5)
      throw std::runtime_error("another figure");
  });
}

TEST_CASE("how a rank failed is read as it was told") {
  const RankFailure told =
      failure_in(failure_text({ExitCode::host_oom, "memory plan: much: more"}));
  CHECK(told.code == ExitCode::host_oom);
  CHECK(told.reason == "memory plan: much: more");
  for (const char* text : {"its connection ended", "exit 3: of another program", "exit : no", ""}) {
    CHECK(failure_in(text).code == ExitCode::comm_error);
    CHECK(failure_in(text).reason == text);
  }
}
