// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/gloo/party.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>

#include "lib/base/error.h"

namespace tessera::trainer::comm {

namespace {

// Returns the value under which a rank tells the others in prepare what they need: the sizes of its
// memory, then its addresses.
std::string prepare_value(std::span<const std::span<std::byte>> registered,
                          const std::string& addresses) {
  std::string value = fmt::format("memory {}", registered.size());
  for (const std::span<std::byte> memory : registered) value += fmt::format(" {}", memory.size());
  return value + "\n" + addresses;
}

// Parses the sizes, as spans without memory.
std::vector<std::span<std::byte>> sizes_in(const std::string& value) {
  std::vector<std::span<std::byte>> sizes;
  std::size_t at = value.find(' ', value.find(' ') + 1);
  const std::size_t end = value.find('\n');
  while (at < end) {
    const std::size_t next = std::min(value.find(' ', at + 1), end);
    sizes.emplace_back(static_cast<std::byte*>(nullptr),
                       std::stoull(value.substr(at + 1, next - at - 1)));
    at = next;
  }
  return sizes;
}

// How long a rank that failed may take to say so in the store.
constexpr auto kReasonLimit = std::chrono::seconds(2);
// The time for what was sent last to arrive if no answer comes: some round trips and delayed
// acknowledgements.
constexpr int kLingerMilliseconds = 300;
constexpr auto kWatchEvery = std::chrono::milliseconds(200);

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

// Returns "rank 2 has aborted", or with its own words "rank 2: out of memory".
std::string text_of(const Lost& lost) {
  return fmt::format("rank {}{} {}", lost.rank, lost.reason == kAborted ? "" : ":", lost.reason);
}

std::string messages_of(int rank) {
  return fmt::format("the messages of rank {} say why", rank);
}

}  // namespace

GlooParty::GlooParty(const GlooModule& module, int rank, int size, Store& store,
                     GlooOptions options)
    : module_(module), rank_(rank), size_(size), store_(store), options_(std::move(options)) {}

GlooParty::~GlooParty() {
  try {
    if (std::uncaught_exceptions() > 0) {
      abort();
    } else if (failure_.empty()) {
      say(Message::Kind::ended, kEnded, rank_);
    }
  } catch (const std::exception&) {
    failure_ = kEnded;  // not announced: the others see the connections end
  }
  disconnect();
}

void GlooParty::begin(const Call& mine) {
  if (thread_ != std::thread::id{}) {
    throw Error(ExitCode::internal, "prepare", "was called before");
  }
  thread_ = std::this_thread::get_id();
  if (!failure_.empty()) rethrow(mine.collective);
  link_ =
      module_.open(rank_, size_, options_.interface.empty() ? nullptr : options_.interface.c_str(),
                   options_.interface.empty() ? options_.host.c_str() : nullptr, error_.data());
  if (link_ == nullptr) {
    throw Error(
        ExitCode::comm_error, "prepare",
        fmt::format("rank {} cannot listen on {}: {}", rank_,
                    options_.interface.empty() ? options_.host : options_.interface, error_.data()),
        "name the network interface in TESSERA_INTERFACE");
  }
  peers_.resize(index(size_));
}

std::string GlooParty::key(int rank) const {
  return fmt::format("{}.{}", options_.name, rank);
}

void GlooParty::meet(const Call& mine) {
  std::size_t bytes = 0;
  const auto check = [&](int result, int peer) {
    if (result != 0)
      fail(mine, fmt::format("no connection with rank {}: {}", peer, error_.data()), peer);
  };
  check(module_.addresses(link_, nullptr, &bytes, error_.data()), rank_);
  std::string addresses(bytes * index(size_), '\0');
  check(module_.addresses(link_, reinterpret_cast<unsigned char*>(addresses.data()), &bytes,
                          error_.data()),
        rank_);
  told_ = true;
  store_.set(key(rank_), prepare_value(mine.registered, addresses));
  std::vector<std::string> values(index(size_));
  for_peers([&](int peer) {
    std::string& value = values[index(peer)];
    try {
      value = store_.get(key(peer), options_.limit);
    } catch (const Error& error) {
      if (const std::optional<Lost> lost = store_.lost())
        fail(mine, text_of(*lost), lost->rank, messages_of(lost->rank));
      fail(mine, error.what(), peer);
    }
    if (value == kAborted || value == kEnded)
      fail(mine, fmt::format("rank {} {}", peer, value), peer, messages_of(peer));
  });
  compare_memory(mine, values);
  // All ranks connect in rank order, so that no two wait for each other in a circle.
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::string& value = values[index(peer)];
    const std::size_t begin = value.find('\n') + 1;
    if (value.size() != begin + bytes * index(size_))
      fail(mine, fmt::format("rank {} told addresses of another kind", peer), peer);
    check(module_.connect(
              link_, peer,
              reinterpret_cast<const unsigned char*>(value.data()) + begin + bytes * index(rank_),
              bytes, error_.data()),
          peer);
    for (Message& message : at(peer).incoming)
      receive(mine, kControlLane, peer, &message, sizeof(Message));
  }
  watcher_ = std::thread([this] { watch(); });
  prepared_ = true;
}

void GlooParty::compare_memory(const Call& mine, const std::vector<std::string>& values) {
  std::vector<std::vector<std::span<std::byte>>> sizes(index(size_));
  std::vector<std::optional<Call>> calls(index(size_));
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) {
      calls[index(rank)] = mine;
      continue;
    }
    sizes[index(rank)] = sizes_in(values[index(rank)]);
    calls[index(rank)] = Call{.collective = Collective::prepare, .registered = sizes[index(rank)]};
  }
  compare(mine, calls);
}

void GlooParty::compare(const Call& mine, const std::vector<std::optional<Call>>& calls) {
  if (std::ranges::all_of(calls, [&](const auto& call) { return is_same(*call, mine); })) return;
  fail(mine, "ranks called different collectives", rank_,
       "every rank must make the same calls in the same order", calls_text(calls));
}

void GlooParty::need_prepared(Collective collective) const {
  const char* name = name_of(collective);
  if (thread_ == std::thread::id{}) {
    throw Error(ExitCode::internal, name, "comes before prepare");
  }
  if (thread_ != std::this_thread::get_id()) {
    throw Error(ExitCode::internal, name, "comes from another thread than prepare");
  }
  if (!failure_.empty()) rethrow(collective);
}

void GlooParty::enter(const Call& mine) {
  if (!failure_.empty()) rethrow(mine.collective);
  ++number_;
  outgoing_.kind = Message::Kind::call;
  outgoing_.collective = static_cast<std::int32_t>(mine.collective);
  outgoing_.dtype = static_cast<std::int32_t>(mine.dtype);
  outgoing_.elements = mine.elements;
  outgoing_.number = number_;
  // A peer's words before its connection ended take precedence, so a fault is reported only after
  // the receives.
  for_peers([&](int peer) {
    if (module_.send(link_, peer, kControlLane, &outgoing_, sizeof outgoing_, error_.data()) != 0)
      at(peer).fault = error_.data();
  });
  bool fine = true;
  for_peers([&](int peer) {
    Peer& other = at(peer);
    if (module_.wait_received(link_, peer, kControlLane, error_.data()) != 0) {
      if (other.fault.empty()) other.fault = error_.data();
      other.message.number = 0;
      fine = false;
      return;
    }
    Message& incoming = other.incoming[(number_ - 1) % kAhead];
    other.message = incoming;
    fine = fine && is_call(mine, other.message);
    // A peer may have done its part and left: the next collective then reports it.
    module_.receive(link_, peer, kControlLane, &incoming, sizeof incoming, error_.data());
  });
  if (!fine) tell_failure(mine);
  for_peers([&](int peer) {
    if (!at(peer).fault.empty()) fail_by_connection(mine, peer, at(peer).fault);
    wait_sent(mine, kControlLane, peer);
  });
}

// Returns whether the message is the same call in the same position.
bool GlooParty::is_call(const Call& mine, const Message& message) const {
  return message.kind == Message::Kind::call && message.number == number_ &&
         message.collective == static_cast<std::int32_t>(mine.collective) &&
         message.dtype == static_cast<std::int32_t>(mine.dtype) &&
         message.elements == mine.elements;
}

// Reports why ranks did not all enter with the same call, most telling reason first: a failure that
// a rank announced, a rank that ended, a broken connection, different calls.
void GlooParty::tell_failure(const Call& mine) {
  std::vector<std::optional<Call>> calls(index(size_));
  calls[index(rank_)] = mine;
  for_peers([&](int peer) {
    const Message& message = at(peer).message;
    if (message.number != number_ || message.kind != Message::Kind::call) return;
    calls[index(peer)] = Call{.collective = static_cast<Collective>(message.collective),
                              .dtype = static_cast<DType>(message.dtype),
                              .elements = message.elements};
  });
  const std::string who = calls_text(calls);
  for (int peer = 0; peer < size_; ++peer) {
    const Message& message = at(peer).message;
    if (peer == rank_ || message.number != number_) continue;
    if (message.kind == Message::Kind::failed)
      fail(mine, message.text.data(), message.origin, messages_of(message.origin), who);
  }
  for (int peer = 0; peer < size_; ++peer) {
    const Message& message = at(peer).message;
    if (peer != rank_ && message.number == number_ && message.kind == Message::Kind::ended)
      fail(mine, fmt::format("rank {} {}", peer, kEnded), peer, messages_of(peer), who);
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && !at(peer).fault.empty()) fail_by_connection(mine, peer, at(peer).fault);
  }
  compare(mine, calls);
  throw Error(ExitCode::internal, name_of(mine.collective), "messages out of order");
}

void GlooParty::send(const Call& mine, Lane lane, int peer, const std::byte* data,
                     std::int64_t bytes) {
  if (module_.send(link_, peer, lane, data, static_cast<std::size_t>(bytes), error_.data()) != 0)
    fail_by_connection(mine, peer, error_.data());
}

void GlooParty::receive(const Call& mine, Lane lane, int peer, void* data, std::int64_t bytes) {
  if (module_.receive(link_, peer, lane, data, static_cast<std::size_t>(bytes), error_.data()) != 0)
    fail_by_connection(mine, peer, error_.data());
}

void GlooParty::wait_sent(const Call& mine, Lane lane, int peer) {
  if (module_.wait_sent(link_, peer, lane, error_.data()) != 0)
    fail_by_connection(mine, peer, error_.data());
}

void GlooParty::wait_received(const Call& mine, Lane lane, int peer) {
  if (module_.wait_received(link_, peer, lane, error_.data()) != 0)
    fail_by_connection(mine, peer, error_.data());
}

std::optional<std::string> GlooParty::poll() {
  if (!failure_.empty()) return failure_;
  const std::optional<Lost> lost = store_.lost();
  return lost ? std::optional(text_of(*lost)) : std::nullopt;
}

void GlooParty::abort() {
  if (!failure_.empty()) return;
  failure_ = fmt::format("rank {} {}", rank_, kAborted);
  fix_ = messages_of(rank_);
  try {
    say(Message::Kind::failed, failure_, rank_);
    if (!store_.lost()) store_.leave(kAborted);
  } catch (const Error& error) {
    fix_ = error.what();  // the others see the connections end
  }
  disconnect();
}

void GlooParty::say(Message::Kind kind, const std::string& text, int origin) {
  if (link_ == nullptr || !prepared_) {
    if (!told_) {
      told_ = true;
      store_.set(key(rank_), kind == Message::Kind::ended ? kEnded : kAborted);
    }
    return;
  }
  last_.kind = kind;
  last_.origin = origin;
  last_.number = number_ + 1;
  const std::size_t bytes = std::min(text.size(), Message::kTextBytes - 1);
  std::memcpy(last_.text.data(), text.data(), bytes);
  last_.text[bytes] = '\0';
  for_peers([&](int peer) {
    module_.send(link_, peer, kControlLane, &last_, sizeof last_, error_.data());
  });
  module_.linger(link_, kControlLane, kLingerMilliseconds);
}

void GlooParty::fail_by_connection(const Call& mine, int peer, const std::string& fault) {
  const auto until = std::chrono::steady_clock::now() + kReasonLimit;
  std::optional<Lost> lost = store_.lost();
  while (!lost && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    lost = store_.lost();
  }
  if (lost) fail(mine, text_of(*lost), lost->rank, messages_of(lost->rank));
  fail(mine, fmt::format("the connection with rank {} failed: {}", peer, fault), peer,
       messages_of(peer));
}

void GlooParty::fail(const Call& mine, const std::string& what, int origin, const std::string& fix,
                     const std::string& who) {
  failure_ = what + who;
  fix_ = fix;
  say(Message::Kind::failed, what, origin);
  disconnect();
  rethrow(mine.collective);
}

void GlooParty::rethrow(Collective collective) const {
  throw Error(ExitCode::comm_error, name_of(collective), failure_, fix_);
}

void GlooParty::watch() {
  std::unique_lock lock(mutex_);
  bool was_lost = false;
  while (!watched_.wait_for(lock, kWatchEvery, [&] { return ended_; })) {
    lock.unlock();
    const bool lost = store_.lost().has_value();
    lock.lock();
    // It releases only at the second sighting, so that what the failed rank itself says can still
    // arrive.
    if (lost && was_lost && !ended_) module_.release(link_);
    was_lost = lost;
  }
}

void GlooParty::disconnect() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  watched_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  if (link_ != nullptr) module_.close(link_);
  link_ = nullptr;
}

}  // namespace tessera::trainer::comm
