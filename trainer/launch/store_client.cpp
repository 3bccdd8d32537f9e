// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/process.h"
#include "trainer/launch/store_sides.h"

namespace tessera::trainer {

namespace {

using wire::Frame;
using wire::Kind;

constexpr std::chrono::seconds kAnswerLimit{60};  // for rank 0 to answer what it answers at once

// A connection that rank 0 has accepted as a rank's, and the bytes that have already come over it.
struct Connection {
  FileDescriptor socket;
  wire::FrameReader frames;
};

// The store on all ranks but 0. A thread of its own reads the connection and notifies `changed_`.
class StoreClient final : public MeetingStore {
 public:
  StoreClient(Connection connection, int nodes)
      : nodes_(nodes),
        socket_(std::move(connection.socket)),
        frames_(std::move(connection.frames)),
        thread_([this] { listen(); }) {}

  ~StoreClient() override {
    if (std::uncaught_exceptions() > exceptions_) leave("it ended with an error");
    constexpr std::chrono::seconds kMoment{2};
    // Leave in peace, and give rank 0 a moment to close the connection.
    send({.kind = Kind::leave}, SteadyClock::now() + kMoment);
    ::shutdown(socket_.get(), SHUT_WR);
    {
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, SteadyClock::now() + kMoment, [&] { return gone_; });
    }
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

  void wait_for_all(SteadyClock::time_point until) override {
    const auto is_over = [&] { return met_ || gone_ || lost_ || !not_met_.empty(); };
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, until, is_over)) {
      // Rank 0 knows who is missing, and tells all.
      lock.unlock();
      send({.kind = Kind::who}, SteadyClock::now() + kAnswerLimit);
      lock.lock();
      changed_.wait_until(lock, SteadyClock::now() + kAnswerLimit, is_over);
    }
    // The first event counts: a rank may have been lost after all had met, and a rank that gave up
    // has left.
    if (met_) return;
    if (!not_met_.empty()) throw Error(ExitCode::comm_error, "meeting", not_met_);
    if (lost_) throw_lost();
    throw_no_answer();
  }

  void set(const std::string& key, const std::string& value) override {
    wire::check_sizes(key, value);
    const auto answer = request({.kind = Kind::set, .key = key, .value = value}, kAnswerLimit);
    if (!answer) throw_no_answer();
    if (answer->kind == Kind::twice)
      throw Error(ExitCode::internal, "store", fmt::format("'{}' is set already", key));
  }

  std::string get(const std::string& key, std::chrono::milliseconds limit) override {
    const auto answer = request({.kind = Kind::get, .key = key}, limit);
    if (answer && answer->kind == Kind::value) return answer->value;
    const std::lock_guard lock(mutex_);
    if (lost_) throw_lost();
    if (gone_) throw_no_answer();
    throw Error(ExitCode::comm_error, "store",
                fmt::format("no rank has set '{}' within {}", key, seconds_text(limit)));
  }

  void leave(const std::string& reason) override {
    constexpr std::chrono::seconds kMoment{2};
    request({.kind = Kind::fail, .value = wire::cut(reason)}, kMoment);
  }

  std::optional<Lost> lost() override {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  [[noreturn]] void throw_lost() const {
    throw Error(ExitCode::comm_error, lost_name_, lost_->reason);
  }
  [[noreturn]] void throw_no_answer() const {
    throw Error(ExitCode::comm_error, rank_name(0, 0, nodes_),
                gone_ ? "has left, and its store with it" : "its store does not answer");
  }

  // Sends a frame. If that fails, the connection ends, and the thread notices it.
  void send(const Frame& frame, SteadyClock::time_point until) {
    const std::lock_guard lock(send_mutex_);
    // After half a frame no other frame can follow.
    if (!send_all(socket_, wire::frame_bytes(frame), until)) ::shutdown(socket_.get(), SHUT_RDWR);
  }

  // Sends a request and returns the answer. Nothing if the connection ends or time is over.
  std::optional<Frame> request(Frame frame, std::chrono::milliseconds limit) {
    const auto until = SteadyClock::now() + limit;
    std::unique_lock lock(mutex_);
    if (gone_) return std::nullopt;
    frame.id = ++last_id_;
    answers_.emplace(frame.id, std::nullopt);
    lock.unlock();
    send(frame, SteadyClock::now() + kAnswerLimit);
    lock.lock();
    const auto entry = answers_.find(frame.id);
    changed_.wait_until(lock, until, [&] { return gone_ || entry->second; });
    std::optional<Frame> answer = std::move(entry->second);
    answers_.erase(entry);
    return answer;
  }

  // ---- the thread ----

  // Reads frames until the connection ends, then wakes everyone who waits.
  void listen() {
    std::array<char, 16384> chunk{};
    while (true) {
      while (const auto frame = frames_.next()) take(*frame);
      if (frames_.is_broken()) break;
      pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      ::poll(&readable, 1, -1);
      const ssize_t got = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) break;
      frames_.add({chunk.data(), static_cast<std::size_t>(got)});
    }
    const std::lock_guard lock(mutex_);
    gone_ = true;
    // Rank 0 is gone without having said that it leaves.
    if (!lost_ && !ended_)
      lose({.rank = 0, .reason = "its connection ended"}, rank_name(0, 0, nodes_));
    changed_.notify_all();
  }

  // Handles a frame: news for all, or the answer to a request.
  void take(const Frame& frame) {
    const std::lock_guard lock(mutex_);
    switch (frame.kind) {
      case Kind::met:
        met_ = true;
        break;
      case Kind::not_met:
        not_met_ = frame.value;
        break;
      case Kind::lost:
        if (!lost_) lose({.rank = static_cast<int>(frame.id), .reason = frame.value}, frame.key);
        break;
      case Kind::end:
        ended_ = true;
        ::shutdown(socket_.get(), SHUT_RDWR);
        break;
      default: {
        const auto entry = answers_.find(frame.id);
        if (entry != answers_.end()) entry->second = frame;
      }
    }
    changed_.notify_all();
  }

  void lose(Lost lost, std::string name) {
    lost_ = std::move(lost);
    lost_name_ = std::move(name);
  }

  const int nodes_;
  const int exceptions_ = std::uncaught_exceptions();
  const FileDescriptor socket_;
  std::mutex send_mutex_;
  wire::FrameReader frames_;  // used by the thread only

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t last_id_ = 0;
  std::map<std::uint32_t, std::optional<Frame>> answers_;  // of pending requests
  bool met_ = false;
  std::string not_met_;
  std::optional<Lost> lost_;
  std::string lost_name_;
  bool ended_ = false;  // rank 0 has left in peace
  bool gone_ = false;   // the connection has ended
  std::thread thread_;
};

// An attempt to connect to one address.
struct Attempt {
  std::string name;
  FileDescriptor socket;
  bool connected = false;
  std::string hello;
  std::string in;
  SteadyClock::time_point until;
};

// Tries addresses, starting the next one when the one before has failed or is slow. It stops at the
// first that knows the token: only to that one does this rank show that it knows the token too.
class Search {
 public:
  Search(const wire::Token& token, const wire::Hello& hello) : token_(token), hello_(hello) {}

  // Returns the connection and, in `proof`, what to send next. Names are tried after numeric
  // addresses, because looking one up may take seconds.
  FileDescriptor run(std::vector<Address> addresses, SteadyClock::time_point until,
                     std::string& proof) {
    constexpr std::chrono::milliseconds kHeadStart{250};
    std::ranges::stable_partition(
        addresses, [](const Address& address) { return !resolve(address, false).empty(); });
    auto next = addresses.begin();
    SteadyClock::time_point next_at = SteadyClock::now();
    while (SteadyClock::now() < until && (next != addresses.end() || !attempts_.empty())) {
      if (next != addresses.end() && (attempts_.empty() || SteadyClock::now() >= next_at)) {
        begin(*next++);
        next_at = SteadyClock::now() + kHeadStart;
        continue;
      }
      // Wake up for the next address, the earliest limit of an attempt or the end of the search.
      SteadyClock::time_point wake = until;
      if (next != addresses.end()) wake = std::min(wake, next_at);
      for (const Attempt& attempt : attempts_) wake = std::min(wake, attempt.until);
      if (FileDescriptor found = wait(wake, proof)) return found;
    }
    return {};
  }

  // Returns "10.0.0.1:4242: Connection refused, ...".
  std::string troubles() const { return fmt::format("{}", fmt::join(troubles_, ", ")); }

 private:
  // Starts to connect to each address that the name stands for.
  void begin(const Address& address) {
    constexpr std::chrono::seconds kLimit{5};
    const std::vector<Address> found = resolve(address, true);
    if (found.empty()) troubles_.push_back(fmt::format("{}: unknown name", to_text(address)));
    for (const Address& numeric : found) {
      std::string trouble;
      Attempt attempt{.name = to_text(numeric), .until = SteadyClock::now() + kLimit};
      attempt.socket = start_connecting(numeric, trouble);
      if (attempt.socket) {
        attempts_.push_back(std::move(attempt));
      } else {
        troubles_.push_back(fmt::format("{}: {}", attempt.name, trouble));
      }
    }
  }

  // Waits for something to happen, at most until then. Returns the connection of the first attempt
  // that finds the token known. Drops the attempts that failed.
  FileDescriptor wait(SteadyClock::time_point until, std::string& proof) {
    std::vector<pollfd> files;
    for (const Attempt& attempt : attempts_)
      files.push_back({.fd = attempt.socket.get(),
                       .events = static_cast<short>(attempt.connected ? POLLIN : POLLOUT),
                       .revents = 0});
    ::poll(files.data(), files.size(), poll_timeout(until));
    for (std::size_t i = 0; i < files.size(); ++i) {
      Attempt& attempt = attempts_[i];
      std::string trouble;
      if (files[i].revents != 0) {
        if (attempt.connected ? hear(attempt, trouble) : greet(attempt, trouble)) {
          proof = wire::proof_bytes(token_, attempt.hello, attempt.in);
          return std::move(attempt.socket);
        }
      } else if (SteadyClock::now() >= attempt.until) {
        trouble = attempt.connected ? "no answer" : "no connection";
      }
      if (trouble.empty()) continue;
      troubles_.push_back(fmt::format("{}: {}", attempt.name, trouble));
      attempt.socket = {};
    }
    std::erase_if(attempts_, [](const Attempt& attempt) { return !attempt.socket; });
    return {};
  }

  // Sends the hello. It never ends the search.
  bool greet(Attempt& attempt, std::string& trouble) {
    if (!is_connected(attempt.socket, trouble)) return false;
    set_options(attempt.socket);
    attempt.connected = true;
    attempt.hello = wire::hello_bytes(hello_);
    // A new connection accepts these few bytes at once.
    if (!send_all(attempt.socket, attempt.hello, SteadyClock::now())) trouble = "it ended";
    return false;
  }

  // Reads the answer. True once the other side has shown that it knows the token.
  bool hear(Attempt& attempt, std::string& trouble) {
    std::array<char, wire::kAnswerBytes> chunk{};
    const ssize_t got = ::recv(attempt.socket.get(), chunk.data(),
                               wire::kAnswerBytes - attempt.in.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      trouble = "it ended";
      return false;
    }
    attempt.in.append(chunk.data(), static_cast<std::size_t>(got));
    if (!wire::may_be_answer(attempt.in)) {
      trouble = "another program is there";
      return false;
    }
    if (attempt.in.size() < wire::kAnswerBytes) return false;
    if (wire::answer_holds(token_, attempt.hello, attempt.in)) return true;
    trouble = "a trainer with another token is there";
    return false;
  }

  const wire::Token token_;
  const wire::Hello hello_;
  std::vector<Attempt> attempts_;
  std::vector<std::string> troubles_;
};

// Returns what rank 0 says to the proof; nothing if the connection ends first.
std::optional<Frame> verdict(const FileDescriptor& socket, wire::FrameReader& frames,
                             SteadyClock::time_point until) {
  std::array<char, 4096> chunk{};
  while (true) {
    if (auto frame = frames.next()) return frame;
    pollfd readable{.fd = socket.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&readable, 1, poll_timeout(until));
    if (frames.is_broken() || ready == 0 || (ready < 0 && errno != EINTR)) return std::nullopt;
    const ssize_t got = ::recv(socket.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return std::nullopt;
    frames.add({chunk.data(), static_cast<std::size_t>(got)});
  }
}

}  // namespace

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000);
}

std::unique_ptr<MeetingStore> join_store(const FindRankZero& find, const Place& place,
                                         SteadyClock::time_point until) {
  constexpr std::chrono::milliseconds kShortestPause{20};
  constexpr std::chrono::milliseconds kLongestPause{250};
  const auto start = SteadyClock::now();
  const wire::Hello hello{.rank = place.rank,
                          .ranks = place.ranks,
                          .node = place.node,
                          .nodes = place.nodes,
                          .host = host_name()};
  std::string trouble;
  std::chrono::milliseconds pause = kShortestPause;
  do {
    std::string why;
    // Look anew in each round: rank 0 may start later than this rank.
    if (const auto rendezvous = find(why)) {
      Search search(rendezvous->token, hello);
      Connection connection;
      std::string proof;
      connection.socket = search.run(rendezvous->addresses, until, proof);
      if (connection.socket && send_all(connection.socket, proof, until)) {
        const auto answer = verdict(connection.socket, connection.frames, until);
        if (answer && answer->kind == Kind::refused)
          throw Error(ExitCode::spec, rank_name(place.rank, place.node, place.nodes), answer->value,
                      "each rank starts once, and all with the same size");
        if (answer && answer->kind == Kind::welcome)
          return std::make_unique<StoreClient>(std::move(connection), place.nodes);
        why = "rank 0 ended the connection";
      } else {
        why = search.troubles();  // empty if time ran out in the middle: the earlier reason stands
      }
    }
    if (!why.empty()) trouble = why;
    // Each pause is twice as long as the one before, up to kLongestPause.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now());
    std::this_thread::sleep_for(std::clamp(left, std::chrono::milliseconds(0), pause));
    pause = std::min(2 * pause, kLongestPause);
  } while (SteadyClock::now() < until);
  throw Error(
      ExitCode::comm_error, rank_name(0, 0, place.nodes),
      fmt::format(
          "has not come within {}: {}",
          seconds_text(std::chrono::round<std::chrono::milliseconds>(SteadyClock::now() - start)),
          trouble.empty() ? "no address has answered" : trouble));
}

}  // namespace tessera::trainer
