// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "lib/base/error.h"
#include "trainer/launch/store_meeting.h"
#include "trainer/launch/store_sides.h"

namespace tessera::trainer {

namespace {

constexpr std::chrono::seconds kMomentToHear{1};  // to hear that rank 0 has left
constexpr std::size_t kMostStrangers = 1024;      // connections that have not proved themselves

// Returns "10.0.0.7"; "?" if the address has no such form.
std::string numeric_host(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0)
    return "?";
  return host.data();
}

// Raises the limit of open files: one connection for each rank, strangers, and the program's own
// files.
void allow_files(int ranks) {
  rlimit limit{};
  const rlim_t wanted = static_cast<rlim_t>(ranks) + kMostStrangers + 256;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The store on rank 0. One thread serves all connections. The members that callers use change
// meeting_ under the mutex, then wake the thread.
class StoreServer final : public MeetingStore {
 public:
  StoreServer(std::vector<FileDescriptor> listeners, const wire::Token& token, const Place& place,
              std::chrono::milliseconds moment)
      : token_(token),
        moment_(moment),
        listeners_(std::move(listeners)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        meeting_(place, changed_) {
    if (!wake_) throw_errno("eventfd", "cannot be made", errno);
    allow_files(place.ranks);
    thread_ = std::thread([this] { serve(); });
  }

  ~StoreServer() override {
    if (std::uncaught_exceptions() > exceptions_) leave("it ended with an error");
    // Let the others leave first, then tell those that remain that the store ends.
    {
      std::unique_lock lock(mutex_);
      wait(lock, SteadyClock::now() + moment_, [&] { return meeting_.present() == 0; });
      meeting_.end();
      end_by_ = SteadyClock::now() + kMomentToHear;
    }
    wake();
    thread_.join();
  }

  void wait_for_all(SteadyClock::time_point until) override {
    std::unique_lock lock(mutex_);
    wait(lock, until,
         [&] { return meeting_.has_met() || meeting_.lost() || !meeting_.not_met().empty(); });
    // The first event counts: a rank may have been lost after all had met, and a rank that gave up
    // has left.
    if (meeting_.has_met()) return;
    if (!meeting_.lost()) {
      meeting_.give_up();
      wake();
    }
    if (!meeting_.not_met().empty())
      throw Error(ExitCode::comm_error, "meeting", meeting_.not_met());
    meeting_.throw_lost();
  }

  void set(const std::string& key, const std::string& value) override {
    wire::check_sizes(key, value);
    const std::lock_guard lock(mutex_);
    if (!meeting_.store(key, value))
      throw Error(ExitCode::internal, "store", fmt::format("'{}' is set already", key));
    wake();
  }

  std::string get(const std::string& key, std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    wait(lock, SteadyClock::now() + limit,
         [&] { return meeting_.find(key) != nullptr || meeting_.lost(); });
    if (const std::string* const value = meeting_.find(key)) return *value;
    if (meeting_.lost()) meeting_.throw_lost();
    throw Error(ExitCode::comm_error, "store",
                fmt::format("no rank has set '{}' within {}", key, seconds_text(limit)));
  }

  void leave(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    meeting_.lose({.rank = 0, .reason = wire::cut(reason)});
    wake();
  }

  std::optional<Lost> lost() override {
    const std::lock_guard lock(mutex_);
    return meeting_.lost();
  }

 private:
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, SteadyClock::time_point until,
            const Condition& condition) {
    changed_.wait_until(lock, until, condition);
  }

  // Wakes the thread, because there is something to send or the store ends.
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto wrote = ::write(wake_.get(), &one, sizeof one);
  }

  // ---- the thread ----

  // Serves until the store ends. A fault of the store counts as the loss of rank 0.
  void serve() {
    try {
      while (serve_round()) {
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      meeting_.lose({.rank = 0, .reason = fmt::format("its store cannot go on: {}", error.what())});
    }
    const std::lock_guard lock(mutex_);
    peers_.clear();
    meeting_.all_gone();
  }

  // One round: waits for an event or the next deadline, then reads, writes and accepts. The mutex
  // is not held while it waits. False: the store ends.
  bool serve_round() {
    std::vector<pollfd> files{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    SteadyClock::time_point until = SteadyClock::now() + std::chrono::minutes(1);
    std::size_t peers = 0;
    {
      const std::lock_guard lock(mutex_);
      const bool ending = meeting_.is_ending();
      if (ending && (meeting_.present() == 0 || SteadyClock::now() >= end_by_)) return false;
      if (ending) until = end_by_;
      for (const auto& peer : peers_) {
        const bool reads = peer->stage != Peer::Stage::leaving;
        files.push_back(
            {.fd = peer->socket.get(),
             .events = static_cast<short>((reads ? POLLIN : 0) | (peer->out.empty() ? 0 : POLLOUT)),
             .revents = 0});
        if (peer->stage != Peer::Stage::member) until = std::min(until, peer->until);
      }
      peers = peers_.size();
      const auto now = SteadyClock::now();
      if (now < accept_from_) until = std::min(until, accept_from_);
      if (!ending && now >= accept_from_) {
        for (const FileDescriptor& listener : listeners_)
          files.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
      }
    }
    if (::poll(files.data(), files.size(), poll_timeout(until)) < 0 && errno != EINTR)
      throw_errno("poll", "failed", errno);

    // Reset the eventfd, then serve everything that is ready.
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    const std::lock_guard lock(mutex_);
    std::vector<Lost> said;
    for (std::size_t i = 0; i < peers; ++i) serve_peer(*peers_[i], files[1 + i].revents, said);
    for (std::size_t i = 1 + peers; i < files.size(); ++i) {
      if (files[i].revents != 0) accept_all(files[i].fd);
    }
    sweep(said);
    return true;
  }

  // Reads from and writes to one connection, and ends it when its time is over.
  void serve_peer(Peer& peer, short events, std::vector<Lost>& said) {
    if (peer.stage != Peer::Stage::leaving) {
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(peer, said);
    } else if ((events & (POLLHUP | POLLERR)) != 0) {
      peer.ended = true;
    }
    if (!peer.ended && !peer.out.empty()) flush(peer);
    if (peer.stage == Peer::Stage::leaving && peer.out.empty()) peer.ended = true;
    if (peer.stage != Peer::Stage::member && SteadyClock::now() >= peer.until) {
      if (peer.stage != Peer::Stage::leaving) meeting_.refuse(peer, "stayed silent");
      peer.ended = true;
    }
  }

  static void flush(Peer& peer) {
    const ssize_t sent =
        ::send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // If the connection has ended, the next read shows it.
    if (sent > 0) peer.out.erase(0, static_cast<std::size_t>(sent));
  }

  // Reads what has come: a stranger's greeting or a member's frames.
  void receive(Peer& peer, std::vector<Lost>& said) {
    std::array<char, 16384> chunk{};
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): with MSG_DONTWAIT it does not
    const ssize_t got = ::recv(peer.socket.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      if (peer.stage != Peer::Stage::member) meeting_.refuse(peer, "went without a proof");
      peer.ended = true;
      return;
    }
    const std::string_view bytes(chunk.data(), static_cast<std::size_t>(got));
    if (peer.stage != Peer::Stage::member) return greet(peer, bytes);
    peer.frames.add(bytes);
    while (const auto frame = peer.frames.next()) meeting_.handle(peer, *frame, said);
    if (peer.frames.is_broken()) peer.ended = true;
  }

  // The greeting: Hello, then Answer, then Proof (wire.h). Anything else is refused at once.
  void greet(Peer& peer, std::string_view bytes) {
    peer.in += bytes;
    if (peer.stage == Peer::Stage::hello) {
      if (!wire::may_be_hello(peer.in) || peer.in.size() > wire::kHelloBytes)
        return meeting_.refuse(peer, "is no rank of a trainer");
      if (peer.in.size() < wire::kHelloBytes) return;
      peer.hello = std::exchange(peer.in, {});
      peer.answer = wire::answer_bytes(token_, peer.hello);
      peer.out += peer.answer;
      peer.stage = Peer::Stage::proof;
      return;
    }
    if (peer.in.size() < wire::kProofBytes) return;
    if (!wire::proof_holds(token_, peer.hello, peer.answer, peer.in))
      return meeting_.refuse(peer, "does not know the token");
    meeting_.admit(peer);
  }

  // Accepts the connections that wait at a listener.
  void accept_all(int listener) {
    // A round accepts a bounded number of connections, so that members have their turn too.
    for (std::size_t i = 0; i < kMostStrangers; ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      FileDescriptor socket(::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN) return;
        // No file descriptor is left: drop a stranger's connection, or else wait.
        if (drop_oldest_stranger()) continue;
        constexpr std::chrono::milliseconds kPause{100};
        accept_from_ = SteadyClock::now() + kPause;
        return;
      }
      set_options(socket);
      if (strangers() >= kMostStrangers) drop_oldest_stranger();
      auto peer = std::make_unique<Peer>();
      peer->socket = std::move(socket);
      peer->host = numeric_host(address, size);
      peer->until = SteadyClock::now() + kGreetingLimit;
      peers_.push_back(std::move(peer));
    }
  }

  static bool is_stranger(const Peer& peer) {
    return !peer.ended && peer.stage != Peer::Stage::member;
  }
  std::size_t strangers() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(peers_, [](const auto& peer) { return is_stranger(*peer); }));
  }
  // Drops the oldest stranger: peers are in the order in which they came.
  bool drop_oldest_stranger() {
    const auto oldest =
        std::ranges::find_if(peers_, [](const auto& peer) { return is_stranger(*peer); });
    if (oldest == peers_.end()) return false;
    meeting_.refuse(**oldest, "stayed silent");
    (*oldest)->socket = {};
    return true;
  }

  // Removes ended peers and records losses. A rank whose connection ended without a word comes
  // before ranks that say that they fail: they may have noticed just that.
  void sweep(const std::vector<Lost>& said) {
    std::vector<Lost> silent;
    for (const auto& peer : peers_) {
      if (!peer->ended || peer->stage != Peer::Stage::member) continue;
      if (auto lost = meeting_.went(*peer)) silent.push_back(*std::move(lost));
    }
    const std::size_t before = peers_.size();
    std::erase_if(peers_, [](const auto& peer) { return peer->ended; });
    for (const auto& lost : silent) meeting_.lose(lost);
    for (const Lost& lost : said) meeting_.lose(lost);
    if (peers_.size() != before) changed_.notify_all();
  }

  const wire::Token token_;
  const std::chrono::milliseconds moment_;
  const int exceptions_ = std::uncaught_exceptions();
  const std::vector<FileDescriptor> listeners_;
  const FileDescriptor wake_;  // an eventfd that wakes the thread when there is something to send

  std::mutex mutex_;
  std::condition_variable changed_;
  Meeting meeting_;
  std::vector<std::unique_ptr<Peer>> peers_;  // changed by the thread only
  SteadyClock::time_point accept_from_;
  SteadyClock::time_point end_by_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<MeetingStore> serve_store(std::vector<FileDescriptor> listeners,
                                          const wire::Token& token, const Place& place,
                                          std::chrono::milliseconds moment) {
  return std::make_unique<StoreServer>(std::move(listeners), token, place, moment);
}

}  // namespace tessera::trainer
