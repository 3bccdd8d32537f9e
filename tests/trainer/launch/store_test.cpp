// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

#include "lib/base/file.h"
#include "tests/temporary.h"
#include "tests/trainer/launch/meeting.h"
#include "trainer/launch/open_store.h"
#include "trainer/launch/rendezvous.h"
#include "trainer/launch/sockets.h"
#include "trainer/launch/store_sides.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using namespace std::chrono_literals;
using tessera::test::TemporaryFolder;

namespace {

void check_all_good(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
}

std::string key_of(const char* what, int rank) {
  return what + std::to_string(rank);
}

// Runs the ranks that come (rank 0 first); all wait for the others. The time of `hurried` is over
// as soon as all of these are here; the others have a long time.
std::vector<Outcome> meet_without(const std::vector<int>& come, int ranks, int nodes, int hurried) {
  std::vector<FileDescriptor> listeners;
  listeners.push_back(listen_on({.host = "127.0.0.1"}));
  const Rendezvous rendezvous{
      .token = wire::random_token(),
      .addresses = {{.host = "127.0.0.1", .port = port_of(listeners.front())}}};
  std::latch here(static_cast<std::ptrdiff_t>(come.size()));
  return run_threads(static_cast<int>(come.size()), [&](int i) {
    const Place own = place(come[static_cast<std::size_t>(i)], ranks, nodes);
    const auto late = SteadyClock::now() + kHours;
    const auto store =
        own.rank == 0
            ? serve_store(std::move(listeners), rendezvous.token, own)
            : join_store([&](std::string&) { return std::optional(rendezvous); }, own, late);
    here.arrive_and_wait();
    store->wait_for_all(own.rank == hurried ? SteadyClock::now() : late);
  });
}

// Returns a free port whose neighbour is free too, below the range from which Linux assigns ports
// (32768 on).
int unused_port() {
  for (int port = 20'001 + ::getpid() % 5'000; port < 32'000; port += 2) {
    const Outcome outcome = outcome_of([&] {
      listen_on({.host = "127.0.0.1", .port = port});
      listen_on({.host = "127.0.0.1", .port = port + 1});
    });
    if (outcome.message.empty()) return port;
  }
  FAIL("no port is free");
  return 0;
}

// A port that is taken although nobody listens on it.
class DeadPort {
 public:
  DeadPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
            0);
  }
  Address address() const { return {.host = "127.0.0.1", .port = port_of(socket_)}; }

 private:
  FileDescriptor socket_;
};

}  // namespace

TEST_CASE("64 ranks meet and read what each of them has set") {
  const TemporaryFolder folder;
  constexpr int kRanks = 64;
  std::atomic<int> right = 0;
  check_all_good(run_ranks(kRanks, folder.path().string(), [&](int rank, Store& store) {
    store.set(key_of("address.", rank), key_of("of ", rank));
    for (int i = 1; i <= kRanks; ++i) {
      const int other = (rank + i) % kRanks;
      if (store.get(key_of("address.", other), kLong) == key_of("of ", other)) ++right;
    }
    CHECK_FALSE(store.lost().has_value());
  }));
  CHECK(right == kRanks * kRanks);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("get waits for a key, values are bytes of up to 64 KiB, threads share a store") {
  const TemporaryFolder folder;
  std::string bytes(64 * 1024, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  check_all_good(run_ranks(3, folder.path().string(), [&](int rank, Store& store) {
    // Each rank waits in four threads for keys that the next rank sets in four threads, in reverse
    // order.
    check_all_good(run_threads(8, [&](int thread) {
      if (thread < 4) {
        CHECK(store.get(key_of(key_of("k", (rank + 1) % 3).c_str(), thread), kLong) == bytes);
      } else {
        store.set(key_of(key_of("k", rank).c_str(), 7 - thread), bytes);
      }
    }));
    if (rank == 1) store.set("empty", "");
    CHECK(store.get("empty", kLong).empty());
  }));
}

TEST_CASE("a key is set once, by whomever") {
  const TemporaryFolder folder;
  check_all_good(run_ranks(2, folder.path().string(), [&](int rank, Store& store) {
    store.set(key_of("mine.", rank), "first");
    store.get(key_of("mine.", 1 - rank), kLong);
    for (int of = 0; of < 2; ++of) {
      const Outcome again = outcome_of([&] { store.set(key_of("mine.", of), "second"); });
      CHECK(again.code == ExitCode::internal);
      CHECK(contains(again.message, "set already"));
      CHECK(store.get(key_of("mine.", of), kLong) == "first");
    }
    CHECK(outcome_of([&] { store.set("big", std::string(65 * 1024, 'x')); }).code ==
          ExitCode::internal);
    store.set(key_of("done.", rank), "");
    store.get(key_of("done.", 1 - rank), kLong);
  }));
}

TEST_CASE("a key that nobody sets is named when time is over") {
  const TemporaryFolder folder;
  check_all_good(run_ranks(2, folder.path().string(), [&](int rank, Store& store) {
    const Outcome outcome = outcome_of([&] { store.get("unique id", 50ms); });
    CHECK(outcome.code == ExitCode::comm_error);
    CHECK(contains(outcome.message, "no rank has set 'unique id' within 0.05 s"));
    store.set(key_of("waited.", rank), "");
    store.get(key_of("waited.", 1 - rank), kLong);
    // A rank may still join.
    if (rank == 1) store.set("unique id", "x");
    CHECK(store.get("unique id", kLong) == "x");
  }));
}

TEST_CASE("the ranks that have not come are named on all that have, whoever's time is over first") {
  const std::vector<int> come{0, 1, 2, 4, 5};
  for (const int hurried : {0, 4}) {
    CAPTURE(hurried);
    for (const Outcome& outcome : meet_without(come, 8, 1, hurried)) {
      CHECK(outcome.code == ExitCode::comm_error);
      CHECK(outcome.message == "meeting: ranks 3, 6-7 have not come");
    }
    for (const Outcome& outcome : meet_without(come, 8, 2, hurried))
      CHECK(outcome.message == "meeting: ranks 3 of node 0, 6-7 of node 1 have not come");
  }
}

TEST_CASE("a rank 0 that nobody joins names all, and leaves no file") {
  const TemporaryFolder folder;
  const auto outcome = outcome_of([&] {
    open_store(place(0, 4), {.run_dir = folder.path().string(), .limit = 50ms}, environment_of({}));
  });
  CHECK(outcome.code == ExitCode::comm_error);
  CHECK(outcome.message == "meeting: ranks 1-3 have not come");
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a missing rank 0 is named, with what was tried") {
  const TemporaryFolder folder;
  const auto outcome = outcome_of([&] {
    open_store(place(1, 2), {.run_dir = folder.path().string(), .limit = 50ms}, environment_of({}));
  });
  CHECK(outcome.code == ExitCode::comm_error);
  CHECK(contains(outcome.message, "rank 0: has not come within "));
  CHECK(contains(outcome.message, "there is no " + folder.path().string() + "/rendezvous.1.0"));
}

TEST_CASE("what other starts left in the folder holds nobody up") {
  const TemporaryFolder folder;
  const auto path = rendezvous_path(folder.path(), 1, 0);
  const DeadPort nobody;
  const std::vector<Address> dead{nobody.address()};
  for (const char* job : {"job", "another job"}) {
    CAPTURE(job);
    const RendezvousFile stale(path,
                               {.job = job, .token = wire::random_token(), .addresses = dead});
    // Run alone beside it, so that the error names the rank.
    const auto alone = outcome_of([&] {
      open_store(place(1, 2), {.run_dir = folder.path().string(), .limit = 300ms},
                 environment_of({}));
    });
    CHECK(contains(alone.message, std::string(job) == "job"
                                      ? to_text(dead.front()) + ": Connection refused"
                                      : "is of job 'another job', this is 'job'"));
    // Rank 0 comes after the other rank has begun to look.
    check_all_good(run_threads(2, [&](int rank) {
      if (rank == 0) std::this_thread::sleep_for(50ms);
      open_store(place(rank, 2), {.run_dir = folder.path().string(), .limit = kLong},
                 environment_of({}));
    }));
  }
}

TEST_CASE("a rank that leaves with a reason is lost to all, at once where they wait") {
  const TemporaryFolder folder;
  for (const int failing : {0, 2}) {
    CAPTURE(failing);
    check_all_good(run_ranks(4, folder.path().string(), [&](int rank, Store& store) {
      store.set(key_of("set.", rank), "before");
      store.get(key_of("set.", failing), kLong);
      if (rank == failing) return store.leave("the loss is not finite");
      for (int i = 0; i < 2; ++i) {  // when it is lost, and afterwards
        const Outcome outcome = outcome_of([&] { store.get("never", kHours); });
        CHECK(outcome.code == ExitCode::comm_error);
        CHECK(outcome.message == key_of("rank ", failing) + ": the loss is not finite");
      }
      const auto lost = store.lost();
      REQUIRE(lost.has_value());
      CHECK(lost->rank == failing);
      CHECK(lost->reason == "the loss is not finite");
      // The first reason stays.
      store.leave("another rank is lost");
      CHECK(store.lost()->rank == failing);
      if (failing != 0) CHECK(store.get(key_of("set.", rank), kLong) == "before");
    }));
  }
}

TEST_CASE("an exception that ends a rank is no leave in peace") {
  const TemporaryFolder folder;
  for (const int failing : {0, 1}) {
    CAPTURE(failing);
    const auto outcomes = run_ranks(2, folder.path().string(), [&](int rank, Store& store) {
      if (rank == failing) throw std::runtime_error("thrown");
      CHECK_FALSE(outcome_of([&] { store.get("never", kLong); }).message.empty());
      const auto lost = store.lost();
      REQUIRE(lost.has_value());
      CHECK(lost->rank == failing);
      CHECK(lost->reason == "it ended with an error");
    });
    CHECK(outcomes[static_cast<std::size_t>(failing)].message == "thrown");
    CHECK(outcomes[static_cast<std::size_t>(1 - failing)].message.empty());
  }
}

TEST_CASE("ranks that leave in peace are not lost, in whatever order") {
  const TemporaryFolder folder;
  std::latch early_left(2);
  check_all_good(run_threads(4, [&](int rank) {
    {
      const auto store = open_store(
          place(rank, 4), {.run_dir = folder.path().string(), .limit = kLong}, environment_of({}));
      store->set(key_of("done.", rank), "");
      for (int other = 0; other < 4; ++other) store->get(key_of("done.", other), kLong);
      // The others still talk when two have gone; rank 0 waits for them.
      if (rank >= 2) {
        early_left.wait();
        store->set(key_of("later.", rank), "x");
        CHECK(store->get(key_of("later.", 5 - rank), kLong) == "x");
        CHECK_FALSE(store->lost().has_value());
      } else if (rank == 0) {
        early_left.count_down();
      }
    }
    if (rank == 1) early_left.count_down();
  }));
}

TEST_CASE(
    "one rank comes twice, or counts the ranks differently: it is refused, the others are not") {
  const TemporaryFolder folder;
  const StoreOptions options{.run_dir = folder.path().string(), .limit = kLong};
  std::latch refused(1);
  check_all_good(run_threads(4, [&](int i) {
    if (i < 2) {  // ranks 0 and 1 of 3
      open_store(place(i, 3), options, environment_of({}));
      return;
    }
    if (i == 2) {  // rank 2 comes last
      refused.wait();
      open_store(place(2, 3), options, environment_of({}));
      return;
    }
    const Outcome size = outcome_of([&] { open_store(place(2, 4), options, environment_of({})); });
    CHECK(size.code == ExitCode::spec);
    CHECK(contains(size.message, "rank 0 waits for 3 ranks on 1 nodes, this one is of 4"));
    // The other rank 1 may come first; then this one is the one that is refused.
    refused.count_down();
  }));

  std::atomic<int> twice = 0;
  std::latch told(1);
  check_all_good(run_threads(4, [&](int i) {
    if (i == 3) {
      told.wait();
      open_store(place(2, 3), options, environment_of({}));
      return;
    }
    const int rank = i == 0 ? 0 : 1;
    const Outcome outcome =
        outcome_of([&] { open_store(place(rank, 3), options, environment_of({})); });
    if (outcome.message.empty()) return;
    CHECK(outcome.code == ExitCode::spec);
    CHECK(contains(outcome.message, "rank 1: has come already, from "));
    ++twice;
    told.count_down();
  }));
  CHECK(twice == 1);
}

TEST_CASE("several nodes meet through the interface that is named") {
  const TemporaryFolder folder;
  for (const char* name : {"TESSERA_INTERFACE", "GLOO_SOCKET_IFNAME"}) {
    check_all_good(run_threads(4, [&](int rank) {
      const auto store =
          open_store(place(rank, 4, 2), {.run_dir = folder.path().string(), .limit = kLong},
                     environment_of({{name, "lo"}}));
      store->set(key_of("r", rank), "");
      for (int other = 0; other < 4; ++other) store->get(key_of("r", other), kLong);
    }));
  }
  const Outcome outcome = outcome_of([&] {
    open_store(place(0, 4, 2), {.run_dir = folder.path().string(), .limit = kLong},
               environment_of({{"TESSERA_INTERFACE", "nosuch7"}}));
  });
  CHECK(outcome.code == ExitCode::spec);
  CHECK(contains(outcome.message, "TESSERA_INTERFACE: this machine has no interface 'nosuch7'"));
}

TEST_CASE("a lost rank of several nodes is named with its node") {
  const TemporaryFolder folder;
  for (const Outcome& outcome : run_threads(4, [&](int rank) {
         const auto store =
             open_store(place(rank, 4, 2), {.run_dir = folder.path().string(), .limit = kLong},
                        environment_of({{"TESSERA_INTERFACE", "lo"}}));
         if (rank == 2) return store->leave("out of memory");
         store->get("never", kHours);
       })) {
    if (!outcome.message.empty()) CHECK(outcome.message == "rank 2 of node 1: out of memory");
  }
}

TEST_CASE("torchrun's ranks meet on the port behind its own") {
  const int port = unused_port();
  const Environment variable =
      environment_of({{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", std::to_string(port)}});
  const auto torchrun = [](int rank, const char* job) {
    Place one = place(rank, 3, 1, job);
    one.from = "torchrun";
    return one;
  };
  check_all_good(run_threads(3, [&](int rank) {
    const auto store = open_store(torchrun(rank, "myrun.0"), {.limit = kLong}, variable);
    store->set(key_of("r", rank), "");
    for (int other = 0; other < 3; ++other) store->get(key_of("r", other), kLong);
  }));
  // The ranks of another run that listen on that port are strangers.
  std::vector<FileDescriptor> listeners;
  listeners.push_back(listen_on({.host = "127.0.0.1", .port = port + 1}));
  const auto other = serve_store(std::move(listeners), wire::derived_token("torchrun:other.0"),
                                 torchrun(0, "other.0"));
  const Outcome foreign =
      outcome_of([&] { open_store(torchrun(1, "myrun.0"), {.limit = 300ms}, variable); });
  CHECK(foreign.code == ExitCode::comm_error);
  CHECK(contains(foreign.message, "a trainer with another token is there"));
  for (const char* bad : {"", "x", "65535"}) {
    const auto outcome = outcome_of([&] {
      open_store(torchrun(1, "myrun.0"), {.limit = kLong},
                 environment_of({{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", bad}}));
    });
    CHECK(outcome.code == ExitCode::spec);
    CHECK(contains(outcome.message, "MASTER_PORT: "));
  }
}

TEST_CASE("ranks that nothing tells where to meet say so") {
  const auto outcome = outcome_of([] { open_store(place(1, 2), {}, environment_of({})); });
  CHECK(outcome.code == ExitCode::spec);
  CHECK(contains(outcome.message, "2 ranks do not know where to meet"));
  for (const auto& [name, value] :
       {std::pair("TESSERA_STORE", "nowhere"), std::pair("TESSERA_STORE_TOKEN", "00"),
        std::pair("TESSERA_STORE_FD", "0"), std::pair("TESSERA_STORE_FD", "x")}) {
    CAPTURE(name);
    std::map<std::string, std::string> variables{{"TESSERA_STORE", "127.0.0.1:1"},
                                                 {"TESSERA_STORE_TOKEN", std::string(32, '0')}};
    variables[name] = value;
    const auto bad = outcome_of([&] { open_store(place(0, 2), {}, environment_of(variables)); });
    CHECK(bad.code == ExitCode::spec);
    CHECK(contains(bad.message, std::string(name) + ": "));
  }
}
