// SPDX-License-Identifier: Apache-2.0
// Strangers, which are no ranks of this start, are refused and hold nobody up.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

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

FileDescriptor connected_to(int port) {
  std::string trouble;
  FileDescriptor socket = start_connecting({.host = "127.0.0.1", .port = port}, trouble);
  REQUIRE(socket);
  pollfd writable{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  REQUIRE(::poll(&writable, 1, 60'000) == 1);
  REQUIRE(is_connected(socket, trouble));
  return socket;
}

void say(const FileDescriptor& socket, const std::string& bytes) {
  // The other side may have closed already.
  send_all(socket, bytes, SteadyClock::now() + kLong);
}

// Returns everything that comes until the other side ends the connection.
std::string hear_until_end(const FileDescriptor& socket) {
  std::string heard;
  std::array<char, 4096> chunk{};
  while (true) {
    pollfd readable{.fd = socket.get(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&readable, 1, 60'000) == 1);
    const ssize_t got = ::recv(socket.get(), chunk.data(), chunk.size(), 0);
    if (got <= 0) return heard;
    heard.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

std::string hear(const FileDescriptor& socket, std::size_t count) {
  std::string heard(count, '\0');
  std::size_t at = 0;
  while (at < count) {
    pollfd readable{.fd = socket.get(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&readable, 1, 60'000) == 1);
    const ssize_t got = ::recv(socket.get(), heard.data() + at, count - at, 0);
    REQUIRE(got > 0);
    at += static_cast<std::size_t>(got);
  }
  return heard;
}

// Meets as ranks 0 and 1 of 3 in threads; rank 2 comes when `strangers` has returned, in time for
// all.
void meet_among(const std::function<void(int port, const std::string& token)>& strangers) {
  const TemporaryFolder folder;
  const StoreOptions options{.run_dir = folder.path().string(), .limit = kLong};
  const auto outcomes = run_threads(3, [&](int rank) {
    if (rank == 2) {
      const Announced announced = wait_for_rendezvous(options.run_dir);
      strangers(announced.port, announced.token);
    }
    const auto store = open_store(place(rank, 3), options, environment_of({}));
    store->set("r" + std::to_string(rank), "");
    for (int other = 0; other < 3; ++other) store->get("r" + std::to_string(other), kLong);
    CHECK_FALSE(store->lost().has_value());
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
}

const wire::Hello kRankTwo{.rank = 2, .ranks = 3, .node = 0, .nodes = 1, .host = "here"};

}  // namespace

TEST_CASE("garbage is cut off at once and told nothing") {
  meet_among([](int port, const std::string&) {
    std::string noise(70'000, '\0');
    for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * i >> 3 | 1);
    const std::string half = wire::hello_bytes(kRankTwo).substr(0, 50);
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string("SSH-2.0-OpenSSH_9.2\r\n"),
          std::string("\x16\x03\x01\x02\x00", 5), noise, std::string(1, '\0'),
          wire::hello_bytes(kRankTwo) + "x"}) {
      const FileDescriptor socket = connected_to(port);
      say(socket, bytes);
      CHECK(hear_until_end(socket).empty());
    }
    // Port scanners send nothing, or half a greeting, and leave.
    for (int i = 0; i < 20; ++i) connected_to(port);
    say(connected_to(port), half);
  });
}

TEST_CASE("those that stay silent hold nobody up") {
  std::vector<FileDescriptor> silent;
  meet_among([&](int port, const std::string&) {
    for (int i = 0; i < 100; ++i) {
      silent.push_back(connected_to(port));
      if (i % 2 == 0) say(silent.back(), "TESSMEET");
    }
  });
}

TEST_CASE("who does not know the token is refused, whichever half of the greeting he has") {
  meet_among([](int port, const std::string& hex) {
    const wire::Token other = wire::random_token();
    const std::string hello = wire::hello_bytes(kRankTwo);
    const FileDescriptor guessing = connected_to(port);
    say(guessing, hello);
    const std::string answer = hear(guessing, wire::kAnswerBytes);
    say(guessing, wire::proof_bytes(other, hello, answer));
    CHECK(hear_until_end(guessing).empty());

    // A replay: what a rank said before, overheard and sent again.
    const wire::Token token = *wire::token_of(hex);
    const FileDescriptor again = connected_to(port);
    say(again, hello);
    const std::string other_answer = hear(again, wire::kAnswerBytes);
    CHECK(wire::answer_holds(token, hello, other_answer));
    CHECK(other_answer != answer);
    say(again, wire::proof_bytes(token, hello, answer));
    CHECK(hear_until_end(again).empty());
  });
}

TEST_CASE("a rank shows its proof only to a rank 0 that knows the token") {
  const FileDescriptor listener = listen_on({.host = "127.0.0.1"});
  const Address address{.host = "127.0.0.1", .port = port_of(listener)};
  const wire::Token token = wire::random_token();
  std::thread impostor([&] {
    pollfd readable{.fd = listener.get(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&readable, 1, 60'000) == 1);
    const FileDescriptor socket(::accept(listener.get(), nullptr, nullptr));
    const std::string hello = hear(socket, wire::kHelloBytes);
    CHECK(wire::parse_hello(hello).has_value());
    say(socket, wire::answer_bytes(wire::random_token(), hello));
    CHECK(hear_until_end(socket).empty());
  });
  const Outcome outcome = outcome_of([&] {
    join_store([&](std::string&) { return Rendezvous{.token = token, .addresses = {address}}; },
               place(1, 2), SteadyClock::now() + 500ms);
  });
  impostor.join();
  CHECK(outcome.code == ExitCode::comm_error);
  CHECK(contains(outcome.message, "rank 0: has not come within "));
}

TEST_CASE(
    "of many addresses the one where rank 0 is is found, dead, silent and foreign ones beside it") {
  const FileDescriptor silent = listen_on({.host = "127.0.0.1"});  // nobody accepts
  int dead = 0;
  {
    const FileDescriptor listener = listen_on({.host = "127.0.0.1"});
    dead = port_of(listener);
  }
  std::vector<FileDescriptor> listeners;
  listeners.push_back(listen_on({.host = "127.0.0.1"}));
  std::vector<FileDescriptor> others;
  others.push_back(listen_on({.host = "127.0.0.1"}));
  const Address other{.host = "127.0.0.1", .port = port_of(others.front())};
  const Address right{.host = "localhost", .port = port_of(listeners.front())};
  const wire::Token token = wire::random_token();
  const auto until = SteadyClock::now() + kLong;
  const auto other_store = serve_store(std::move(others), wire::random_token(), place(0, 2));
  const auto store = serve_store(std::move(listeners), token, place(0, 2));
  const auto client = join_store(
      [&](std::string&) {
        return Rendezvous{.token = token,
                          .addresses = {{.host = "127.0.0.1", .port = dead},
                                        {.host = "127.0.0.1", .port = port_of(silent)},
                                        other,
                                        {.host = "no-such-host.invalid", .port = dead},
                                        right}};
      },
      place(1, 2), until);
  client->wait_for_all(until);
  store->wait_for_all(until);
}

TEST_CASE("who was refused stands in the message that somebody is missing") {
  std::vector<FileDescriptor> listeners;
  listeners.push_back(listen_on({.host = "127.0.0.1"}));
  const int port = port_of(listeners.front());
  const auto store = serve_store(std::move(listeners), wire::random_token(), place(0, 2));
  for (const char* bytes : {"SSH-2.0-OpenSSH_9.2\r\n", "GET / HTTP/1.1\r\n"}) {
    const FileDescriptor socket = connected_to(port);
    say(socket, bytes);
    hear_until_end(socket);
  }
  CHECK(outcome_of([&] { store->wait_for_all(SteadyClock::now()); }).message ==
        "meeting: rank 1 has not come; 2 connections were refused, the last of 127.0.0.1, which is "
        "no rank of a trainer");
}

TEST_CASE("a member that begins to talk nonsense is lost") {
  std::vector<FileDescriptor> listeners;
  listeners.push_back(listen_on({.host = "127.0.0.1"}));
  const int port = port_of(listeners.front());
  const wire::Token token = wire::random_token();
  const auto store = serve_store(std::move(listeners), token, place(0, 3));
  const FileDescriptor socket = connected_to(port);
  const std::string hello = wire::hello_bytes(kRankTwo);
  say(socket, hello);
  say(socket, wire::proof_bytes(token, hello, hear(socket, wire::kAnswerBytes)));
  wire::FrameReader frames;
  frames.add(hear(socket, wire::frame_bytes({.kind = wire::Kind::welcome}).size()));
  const auto welcome = frames.next();
  REQUIRE(welcome.has_value());
  CHECK(welcome->kind == wire::Kind::welcome);
  CHECK_FALSE(store->lost().has_value());
  say(socket, std::string(100, '\xff'));
  hear_until_end(socket);
  wait_until([&] { return store->lost().has_value(); });
  CHECK(store->lost()->rank == 2);
}
