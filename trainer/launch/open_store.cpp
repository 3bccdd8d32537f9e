// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/open_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <utility>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "trainer/launch/store_sides.h"

namespace tessera::trainer {

namespace {

// The parameters of every way to meet.
struct WayToMeet {
  const Place& place;
  const Environment& variable;
  SteadyClock::time_point until;
};

std::string required(const Environment& variable, const char* name, std::string_view fix) {
  const auto text = variable(name);
  if (!text || text->empty()) throw Error(ExitCode::spec, name, "is not set", fix);
  return *text;
}

std::unique_ptr<Store> serve(const WayToMeet& meeting, std::vector<FileDescriptor> listeners,
                             const wire::Token& token) {
  auto store = serve_store(std::move(listeners), token, meeting.place);
  store->wait_for_all(meeting.until);
  return store;
}

std::unique_ptr<Store> join(const WayToMeet& meeting, const FindRankZero& find) {
  auto store = join_store(find, meeting.place, meeting.until);
  store->wait_for_all(meeting.until);
  return store;
}

// ---- `trainer --nproc` ----

FileDescriptor inherited_listener(const Environment& variable) {
  constexpr std::string_view kFix = "`trainer --nproc` sets it";
  const std::string text = required(variable, kStoreSocketVariable, kFix);
  const auto number = parse_integer(text);
  constexpr int kMostFile = 1 << 20;
  int listening = 0;
  socklen_t size = sizeof listening;
  if (!number || *number < 3 || *number > kMostFile ||
      ::getsockopt(static_cast<int>(*number), SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 ||
      listening == 0)
    throw Error(ExitCode::spec, kStoreSocketVariable,
                fmt::format("'{}' is no listening socket", text), kFix);
  FileDescriptor listener(static_cast<int>(*number));
  ::fcntl(listener.get(), F_SETFD, FD_CLOEXEC);
  ::fcntl(listener.get(), F_SETFL, ::fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  return listener;
}

std::unique_ptr<Store> meet_inherited(const WayToMeet& meeting) {
  constexpr std::string_view kFix = "`trainer --nproc` sets it";
  const std::string text = required(meeting.variable, kStoreVariable, kFix);
  const auto address = parse_address(text);
  if (!address) throw Error(ExitCode::spec, kStoreVariable, "is no address", kFix);
  const auto token = wire::token_of(required(meeting.variable, kStoreTokenVariable, kFix));
  if (!token) throw Error(ExitCode::spec, kStoreTokenVariable, "is no token", kFix);
  if (meeting.place.rank == 0) {
    std::vector<FileDescriptor> listeners;
    listeners.push_back(inherited_listener(meeting.variable));
    return serve(meeting, std::move(listeners), *token);
  }
  return join(meeting,
              [&](std::string&) { return Rendezvous{.token = *token, .addresses = {*address}}; });
}

// ---- torchrun ----

std::unique_ptr<Store> meet_by_torchrun(const WayToMeet& meeting) {
  constexpr std::string_view kFix = "torchrun sets it";
  const std::string host = required(meeting.variable, "MASTER_ADDR", kFix);
  const std::string text = required(meeting.variable, "MASTER_PORT", kFix);
  const auto port = parse_integer(text);
  constexpr int kMostMasterPort = 65534;
  if (!port || *port < 1 || *port > kMostMasterPort)
    throw Error(ExitCode::spec, "MASTER_PORT", fmt::format("'{}' is no port", text),
                fmt::format("a number from 1 to {}: the ranks meet on the port behind it",
                            kMostMasterPort));
  // torchrun itself listens on MASTER_PORT.
  const int own_port = static_cast<int>(*port) + 1;
  const wire::Token token = wire::derived_token("torchrun:" + meeting.place.job);
  const bool one_node = meeting.place.nodes == 1;
  if (meeting.place.rank == 0) {
    std::vector<FileDescriptor> listeners;
    listeners.push_back(one_node ? listen_on({.host = "127.0.0.1", .port = own_port})
                                 : listen_everywhere(own_port));
    return serve(meeting, std::move(listeners), token);
  }
  const Address address{.host = one_node ? "127.0.0.1" : host, .port = own_port};
  return join(meeting,
              [&](std::string&) { return Rendezvous{.token = token, .addresses = {address}}; });
}

// ---- the run's folder ----

std::unique_ptr<Store> meet_in_folder(const WayToMeet& meeting, const StoreOptions& options) {
  const auto path = rendezvous_path(options.run_dir, options.attempt, options.restart);
  if (meeting.place.rank == 0) {
    Listening listening = listen_for(meeting.place, meeting.variable);
    const Rendezvous rendezvous{.job = meeting.place.job,
                                .token = wire::random_token(),
                                .addresses = std::move(listening.addresses)};
    make_directories(options.run_dir);
    // It serves before the file is written, so that nobody finds an address that does not answer.
    // The file goes when all have met.
    auto store = serve_store(std::move(listening.sockets), rendezvous.token, meeting.place);
    const RendezvousFile file(path, rendezvous);
    store->wait_for_all(meeting.until);
    return store;
  }
  return join(meeting,
              [&](std::string& why) { return read_rendezvous(path, meeting.place.job, why); });
}

}  // namespace

std::unique_ptr<Store> open_store(const Place& place, const StoreOptions& options,
                                  const Environment& variable) {
  if (place.ranks < 2) throw Error(ExitCode::internal, "open_store", "one rank has nobody to meet");
  const WayToMeet meeting{
      .place = place, .variable = variable, .until = SteadyClock::now() + options.limit};
  if (place.from == "TESSERA_*" && variable(kStoreVariable)) return meet_inherited(meeting);
  if (place.from == "torchrun") return meet_by_torchrun(meeting);
  if (!options.run_dir.empty()) return meet_in_folder(meeting, options);
  throw Error(ExitCode::spec, "paths.run_dir",
              fmt::format("null: {} ranks do not know where to meet", place.ranks),
              "a run directory that all nodes see, `trainer --nproc N`, or torchrun");
}

}  // namespace tessera::trainer
