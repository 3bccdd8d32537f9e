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
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "lib/base/error.h"
#include "trainer/launch/roll_call.h"
#include "trainer/launch/store_sides.h"

namespace tessera::trainer {

namespace {

using wire::Frame;
using wire::Kind;

constexpr std::chrono::seconds kGreetingLimit{10};
constexpr std::chrono::seconds kMomentToHear{1};  // that rank 0 has left
constexpr std::size_t kMostStrangers = 1024;      // connections that have not proved themselves

// One connection.
struct Peer {
  enum class Stage : std::uint8_t {
    hello,    // waits for its Hello
    proof,    // waits for its Proof
    member,   // is a rank
    leaving,  // gets its last bytes
  };
  FileDescriptor socket;
  std::string host;  // numeric
  Stage stage = Stage::hello;
  SteadyClock::time_point until;  // of the greeting, or of the last bytes
  std::string in;                 // of the greeting
  std::string hello, answer;
  wire::FrameReader frames;
  std::string out;
  int rank = -1;
  bool told = false;  // it said that it leaves, or that it fails
  bool ended = false;
};

std::string numeric_host(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0)
    return "?";
  return host.data();
}

// A connection a rank, strangers, and what the program opens otherwise.
void allow_files(int ranks) {
  rlimit limit{};
  const rlim_t wanted = static_cast<rlim_t>(ranks) + kMostStrangers + 256;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

class StoreServer final : public MeetingStore {
 public:
  StoreServer(std::vector<FileDescriptor> listeners, const wire::Token& token, Place place,
              std::chrono::milliseconds moment)
      : place_(std::move(place)),
        token_(token),
        moment_(moment),
        listeners_(std::move(listeners)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        members_(static_cast<std::size_t>(place_.ranks)),
        node_of_(members_.size(), -1),
        host_of_(members_.size()) {
    if (!wake_) throw_errno("eventfd", "cannot be made", errno);
    node_of_[0] = place_.node;
    come_ = 1;
    allow_files(place_.ranks);
    thread_ = std::thread([this] { serve(); });
  }

  ~StoreServer() override {
    if (std::uncaught_exceptions() > exceptions_) leave("it ended with an error");
    {
      std::unique_lock lock(mutex_);
      wait(lock, SteadyClock::now() + moment_, [&] { return present_ == 0; });
      broadcast({.kind = Kind::end});
      ending_ = true;
      end_by_ = SteadyClock::now() + kMomentToHear;
    }
    wake();
    thread_.join();
  }

  void wait_for_all(SteadyClock::time_point until) override {
    std::unique_lock lock(mutex_);
    wait(lock, until, [&] { return met_ || lost_ || !not_met_.empty(); });
    // What came first: a rank may have been lost after all had met, and whoever gave up has left.
    if (met_) return;
    if (!lost_) give_up();
    if (!not_met_.empty()) throw Error(ExitCode::comm_error, "meeting", not_met_);
    throw_lost();
  }

  void set(const std::string& key, const std::string& value) override {
    wire::check_sizes(key, value);
    const std::lock_guard lock(mutex_);
    if (!store(key, value))
      throw Error(ExitCode::internal, "store", fmt::format("'{}' is set already", key));
    wake();
  }

  std::string get(const std::string& key, std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    wait(lock, SteadyClock::now() + limit, [&] { return values_.contains(key) || lost_; });
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    if (lost_) throw_lost();
    throw Error(ExitCode::comm_error, "store",
                fmt::format("no rank has set '{}' within {}", key, seconds_text(limit)));
  }

  void leave(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    lose({.rank = 0, .reason = wire::cut(reason)});
    wake();
  }

  std::optional<Lost> lost() override {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, SteadyClock::time_point until,
            const Condition& condition) {
    changed_.wait_until(lock, until, condition);
  }

  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto wrote = ::write(wake_.get(), &one, sizeof one);
  }

  std::string name_of(int rank) const {
    return rank_name(rank, node_of_[static_cast<std::size_t>(rank)], place_.nodes);
  }

  [[noreturn]] void throw_lost() const {
    throw Error(ExitCode::comm_error, name_of(lost_->rank), lost_->reason);
  }

  // All below: with the mutex held.

  void send(Peer& peer, const Frame& frame) { peer.out += wire::frame_bytes(frame); }

  void broadcast(const Frame& frame) {
    for (Peer* const peer : members_) {
      if (peer != nullptr) send(*peer, frame);
    }
  }

  bool store(const std::string& key, const std::string& value) {
    if (!values_.emplace(key, value).second) return false;
    const auto waiting = waiting_.find(key);
    if (waiting != waiting_.end()) {
      for (const auto& [rank, id] : waiting->second) {
        Peer* const peer = members_[static_cast<std::size_t>(rank)];
        if (peer != nullptr) send(*peer, {.kind = Kind::value, .id = id, .value = value});
      }
      waiting_.erase(waiting);
    }
    changed_.notify_all();
    return true;
  }

  Frame lost_frame() const {
    return {.kind = Kind::lost,
            .id = static_cast<std::uint32_t>(lost_->rank),
            .key = name_of(lost_->rank),
            .value = lost_->reason};
  }

  // The first one is the reason of all that follows.
  void lose(Lost lost) {
    if (lost_) return;
    lost_ = std::move(lost);
    broadcast(lost_frame());
    for (const auto& [key, requests] : waiting_) {
      for (const auto& [rank, id] : requests) {
        Peer* const peer = members_[static_cast<std::size_t>(rank)];
        if (peer != nullptr) send(*peer, {.kind = Kind::absent, .id = id});
      }
    }
    waiting_.clear();
    changed_.notify_all();
  }

  // Somebody's time is over.
  void give_up() {
    if (met_ || !not_met_.empty()) return;
    not_met_ = missing_ranks(node_of_, place_.nodes);
    if (!refusal_.empty())
      not_met_ += fmt::format("; {} {} refused, the last {}", refusals_,
                              refusals_ == 1 ? "connection was" : "connections were", refusal_);
    broadcast({.kind = Kind::not_met, .value = not_met_});
    changed_.notify_all();
    wake();
  }

  // ---- the thread ----

  void serve() {
    try {
      while (serve_round()) {
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      lose({.rank = 0, .reason = fmt::format("its store cannot go on: {}", error.what())});
    }
    const std::lock_guard lock(mutex_);
    std::ranges::fill(members_, nullptr);
    peers_.clear();
    present_ = 0;
    changed_.notify_all();
  }

  bool serve_round() {
    std::vector<pollfd> files{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    SteadyClock::time_point until = SteadyClock::now() + std::chrono::minutes(1);
    std::size_t peers = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ending_ && (present_ == 0 || SteadyClock::now() >= end_by_)) return false;
      if (ending_) until = end_by_;
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
      if (!ending_ && now >= accept_from_) {
        for (const FileDescriptor& listener : listeners_)
          files.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
      }
    }
    if (::poll(files.data(), files.size(), poll_timeout(until)) < 0 && errno != EINTR)
      throw_errno("poll", "failed", errno);

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

  void serve_peer(Peer& peer, short events, std::vector<Lost>& said) {
    if (peer.stage != Peer::Stage::leaving) {
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(peer, said);
    } else if ((events & (POLLHUP | POLLERR)) != 0) {
      peer.ended = true;
    }
    if (!peer.ended && !peer.out.empty()) flush(peer);
    if (peer.stage == Peer::Stage::leaving && peer.out.empty()) peer.ended = true;
    if (peer.stage != Peer::Stage::member && SteadyClock::now() >= peer.until) {
      if (peer.stage != Peer::Stage::leaving) refuse(peer, "stayed silent");
      peer.ended = true;
    }
  }

  static void flush(Peer& peer) {
    const ssize_t sent =
        ::send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // An end of the connection shows when it is read.
    if (sent > 0) peer.out.erase(0, static_cast<std::size_t>(sent));
  }

  void receive(Peer& peer, std::vector<Lost>& said) {
    std::array<char, 16384> chunk{};
    const ssize_t got = ::recv(peer.socket.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      if (peer.stage != Peer::Stage::member) refuse(peer, "went without a proof");
      peer.ended = true;
      return;
    }
    const std::string_view bytes(chunk.data(), static_cast<std::size_t>(got));
    if (peer.stage != Peer::Stage::member) return greet(peer, bytes);
    peer.frames.add(bytes);
    while (const auto frame = peer.frames.next()) handle(peer, *frame, said);
    if (peer.frames.is_broken()) peer.ended = true;
  }

  // Remembered for the message to people, of which the last is enough.
  void refuse(Peer& peer, std::string_view what) {
    ++refusals_;
    refusal_ = fmt::format("of {}, which {}", peer.host, what);
    peer.ended = true;
  }

  void greet(Peer& peer, std::string_view bytes) {
    peer.in += bytes;
    if (peer.stage == Peer::Stage::hello) {
      if (!wire::may_be_hello(peer.in) || peer.in.size() > wire::kHelloBytes)
        return refuse(peer, "is no rank of a trainer");
      if (peer.in.size() < wire::kHelloBytes) return;
      peer.hello = std::exchange(peer.in, {});
      peer.answer = wire::answer_bytes(token_, peer.hello);
      peer.out += peer.answer;
      peer.stage = Peer::Stage::proof;
      return;
    }
    if (peer.in.size() < wire::kProofBytes) return;
    if (!wire::proof_holds(token_, peer.hello, peer.answer, peer.in))
      return refuse(peer, "does not know the token");
    admit(peer);
  }

  // It knows the token. Whoever is refused here is told why.
  void admit(Peer& peer) {
    const auto hello = wire::parse_hello(peer.hello);
    std::string why;
    if (!hello) {
      why = "rank 0 is another version of the trainer";
    } else if (hello->ranks != place_.ranks || hello->nodes != place_.nodes) {
      why =
          fmt::format("rank 0 waits for {} ranks on {} nodes, this one is of {} ranks on {} nodes",
                      place_.ranks, place_.nodes, hello->ranks, hello->nodes);
    } else if (node_of_[static_cast<std::size_t>(hello->rank)] >= 0) {
      why = hello->rank == 0 ? "there is a rank 0 already, which serves the store"
                             : fmt::format("has come already, from {}",
                                           host_of_[static_cast<std::size_t>(hello->rank)]);
    }
    if (!why.empty()) {
      send(peer, {.kind = Kind::refused, .value = why});
      peer.stage = Peer::Stage::leaving;
      peer.until = SteadyClock::now() + kGreetingLimit;
      ++refusals_;
      refusal_ = fmt::format("of {}: {}", peer.host, why);
      return;
    }
    peer.stage = Peer::Stage::member;
    peer.rank = hello->rank;
    const auto index = static_cast<std::size_t>(peer.rank);
    members_[index] = &peer;
    node_of_[index] = hello->node;
    host_of_[index] = hello->host;
    ++come_;
    ++present_;
    send(peer, {.kind = Kind::welcome});
    if (lost_) send(peer, lost_frame());
    if (!not_met_.empty()) send(peer, {.kind = Kind::not_met, .value = not_met_});
    if (ending_) send(peer, {.kind = Kind::end});
    if (come_ != place_.ranks || !not_met_.empty()) return;
    met_ = true;
    broadcast({.kind = Kind::met});
    changed_.notify_all();
  }

  void handle(Peer& peer, const Frame& frame, std::vector<Lost>& said) {
    switch (frame.kind) {
      case Kind::set:
        return send(peer, {.kind = store(frame.key, frame.value) ? Kind::done : Kind::twice,
                           .id = frame.id});
      case Kind::get: {
        const auto found = values_.find(frame.key);
        if (found != values_.end())
          return send(peer, {.kind = Kind::value, .id = frame.id, .value = found->second});
        if (lost_) return send(peer, {.kind = Kind::absent, .id = frame.id});
        waiting_[frame.key].emplace_back(peer.rank, frame.id);
        return;
      }
      case Kind::fail:
        peer.told = true;
        said.push_back({.rank = peer.rank, .reason = frame.value});
        return send(peer, {.kind = Kind::done, .id = frame.id});
      case Kind::who:
        return give_up();
      case Kind::leave:
        peer.told = true;
        return;
      default:
        peer.ended = true;
        return;
    }
  }

  void accept_all(int listener) {
    // Not for ever: those that are members have their turn too.
    for (std::size_t i = 0; i < kMostStrangers; ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      FileDescriptor socket(::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                                      SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN) return;
        // No file is left for it: a stranger's is taken, else it waits.
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
  // They stand in the order in which they came.
  bool drop_oldest_stranger() {
    const auto oldest =
        std::ranges::find_if(peers_, [](const auto& peer) { return is_stranger(*peer); });
    if (oldest == peers_.end()) return false;
    refuse(**oldest, "stayed silent");
    (*oldest)->socket = {};
    return true;
  }

  // A rank whose connection ended without a word comes before those that say that they fail: they
  // may have noticed just that.
  void sweep(const std::vector<Lost>& said) {
    std::vector<Lost> silent;
    for (const auto& peer : peers_) {
      if (!peer->ended || peer->stage != Peer::Stage::member) continue;
      members_[static_cast<std::size_t>(peer->rank)] = nullptr;
      --present_;
      if (peer->told) continue;
      const std::string& host = host_of_[static_cast<std::size_t>(peer->rank)];
      silent.push_back({.rank = peer->rank,
                        .reason = place_.nodes > 1
                                      ? fmt::format("its connection ended; it ran on {}", host)
                                      : "its connection ended"});
    }
    const std::size_t before = peers_.size();
    std::erase_if(peers_, [](const auto& peer) { return peer->ended; });
    for (const auto& lost : silent) lose(lost);
    for (const Lost& lost : said) lose(lost);
    if (peers_.size() != before) changed_.notify_all();
  }

  const Place place_;
  const wire::Token token_;
  const std::chrono::milliseconds moment_;
  const int exceptions_ = std::uncaught_exceptions();
  const std::vector<FileDescriptor> listeners_;
  const FileDescriptor wake_;  // written to when there is something to send

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<std::pair<int, std::uint32_t>>> waiting_;  // rank, request
  std::vector<std::unique_ptr<Peer>> peers_;  // changed by the thread alone
  std::vector<Peer*> members_;                // by rank; null: none, not yet or no more
  std::vector<int> node_of_;                  // of those that have ever come, else -1
  std::vector<std::string> host_of_;
  int come_ = 0;
  int present_ = 0;  // members
  bool met_ = false;
  std::string not_met_;  // who was missing when somebody's time was over
  std::optional<Lost> lost_;
  int refusals_ = 0;
  std::string refusal_;
  SteadyClock::time_point accept_from_;
  bool ending_ = false;
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
