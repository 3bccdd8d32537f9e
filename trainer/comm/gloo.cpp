#include "trainer/comm/gloo.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "trainer/comm/call.h"
#include "trainer/comm/gloo/module.h"
#include "trainer/comm/sum.h"

namespace tessera::trainer {
namespace {

using comm::Call;
using comm::Collective;
using comm::GlooLink;
using comm::GlooModule;
using comm::Lane;

constexpr const char* kAborted = "has aborted";
constexpr const char* kEnded = "has ended";
// How long a rank that failed may take to say so in the store.
constexpr auto kReasonLimit = std::chrono::seconds(2);
// For what was sent last to arrive where no answer comes: some round trips and delayed
// acknowledgements.
constexpr int kLingerMilliseconds = 300;
constexpr auto kWatchEvery = std::chrono::milliseconds(200);

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

// What ranks tell each other at the entrance of a collective, in the place of the n-th.
struct Message {
  enum class Kind : std::int32_t { call, ended, failed };
  static constexpr std::size_t kTextBytes = 112;

  Kind kind = Kind::call;
  std::int32_t collective = 0;
  std::int32_t dtype = 0;
  std::int32_t origin = 0;  // of failed: the rank that failed first
  std::int64_t elements = 0;
  std::uint64_t number = 0;                                         // n
  std::array<char, kTextBytes> text{};                              // of failed: why, ends with 0
  alignas(double) std::array<std::byte, comm::kSmallBytes> data{};  // of a small all-reduce
};
static_assert(std::is_trivially_copyable_v<Message>);

// "rank 2 has aborted", or with what it said itself "rank 2: out of memory".
std::string text_of(const Lost& lost) {
  return fmt::format("rank {}{} {}", lost.rank, lost.reason == kAborted ? "" : ":", lost.reason);
}

// The value under which a rank tells the others in prepare what they need: the sizes of its
// memory, then its addresses.
std::string prepare_value(std::span<const std::span<std::byte>> registered,
                          const std::string& addresses) {
  std::string value = fmt::format("memory {}", registered.size());
  for (const std::span<std::byte> memory : registered) value += fmt::format(" {}", memory.size());
  return value + "\n" + addresses;
}

// The sizes are kept as spans of no memory.
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

class GlooRank final : public Communicator {
 public:
  GlooRank(const GlooModule& module, int rank, int size, Store& store, GlooOptions options)
      : module_(module), rank_(rank), size_(size), store_(store), options_(std::move(options)) {}

  ~GlooRank() override {
    try {
      if (std::uncaught_exceptions() > 0) {
        abort();
      } else if (failure_.empty()) {
        say(Message::Kind::ended, kEnded, rank_);
      }
    } catch (const std::exception&) {
      failure_ = kEnded;  // untold: the others see the connections end
    }
    disconnect();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void prepare(std::span<const std::span<std::byte>> registered) override {
    if (thread_ != std::thread::id{}) {
      throw Error(ExitCode::internal, "prepare", "was called before");
    }
    thread_ = std::this_thread::get_id();
    const Call mine{.collective = Collective::prepare, .registered = registered};
    if (!failure_.empty()) rethrow(mine.collective);
    link_ = module_.open(
        rank_, size_, options_.interface.empty() ? nullptr : options_.interface.c_str(),
        options_.interface.empty() ? options_.host.c_str() : nullptr, error_.data());
    if (link_ == nullptr) {
      throw Error(ExitCode::comm_error, "prepare",
                  fmt::format("rank {} cannot listen on {}: {}", rank_,
                              options_.interface.empty() ? options_.host : options_.interface,
                              error_.data()),
                  "name the network interface in TESSERA_INTERFACE");
    }
    allocate();
    meet(mine);
    prepared_ = true;
    enter(mine);
  }

  void all_gather(Stream /*stream*/, Tensor shard, Tensor full) override {
    const Call mine = comm::all_gather_call(rank_, size_, shard, full);
    need_prepared(mine.collective);
    enter(mine);
    const std::int64_t bytes = mine.bytes();
    for_peers(
        [&](int peer) { receive(mine, comm::kGatherLane, peer, mine.out + bytes * peer, bytes); });
    for_peers([&](int peer) { send(mine, comm::kGatherLane, peer, mine.in, bytes); });
    std::byte* const own = mine.out + bytes * rank_;
    if (own != mine.in) std::memcpy(own, mine.in, static_cast<std::size_t>(bytes));
    for_peers([&](int peer) { wait_received(mine, comm::kGatherLane, peer); });
    for_peers([&](int peer) { wait_sent(mine, comm::kGatherLane, peer); });
  }

  void reduce_scatter_sum(Stream /*stream*/, Tensor full, Tensor shard) override {
    const Call mine = comm::reduce_scatter_sum_call(rank_, size_, full, shard);
    need_prepared(mine.collective);
    enter(mine);
    const std::int64_t piece = piece_elements(mine);
    const auto part = [&](std::int64_t round, int rank) {
      const std::int64_t first = round * piece;
      return Part{mine.elements * rank + first, std::min(piece, mine.elements - first)};
    };
    // A shard may be its own slice, which is sent to nobody.
    sum_in_rounds(
        mine, (mine.elements + piece - 1) / piece, part, const_cast<std::byte*>(mine.in),
        [&](std::int64_t round) { return mine.out + round * piece * bytes_of(mine.dtype); }, false);
  }

  void all_reduce_sum(Stream /*stream*/, Tensor tensor) override {
    const Call mine = comm::all_reduce_sum_call(tensor);
    need_prepared(mine.collective);
    if (mine.bytes() <= comm::kSmallBytes) return all_reduce_small(mine);
    enter(mine);
    // A round is a part of the tensor with a part for each rank in it, whole cache lines but the
    // last.
    const std::int64_t piece = piece_elements(mine);
    const std::int64_t line = 64 / bytes_of(mine.dtype);
    const std::int64_t whole = piece * size_;
    const auto part = [&](std::int64_t round, int rank) {
      const std::int64_t begin = round * whole;
      const std::int64_t count = std::min(whole, mine.elements - begin);
      const std::int64_t lines = (count + line - 1) / line;
      const std::int64_t most = (lines + size_ - 1) / size_ * line;
      const std::int64_t first = std::min(most * rank, count);
      return Part{begin + first, std::min(most, count - first)};
    };
    sum_in_rounds(
        mine, (mine.elements + whole - 1) / whole, part, mine.out,
        [&](std::int64_t round) {
          return mine.out + part(round, rank_).first * bytes_of(mine.dtype);
        },
        true);
  }

  std::optional<std::string> poll() override {
    if (!failure_.empty()) return failure_;
    const std::optional<Lost> lost = store_.lost();
    return lost ? std::optional(text_of(*lost)) : std::nullopt;
  }

  void abort() override {
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

 private:
  // Elements of a tensor.
  struct Part {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  static constexpr std::size_t kAhead = 3;
  struct Peer {
    // Where its next words come, those after n to the n-th modulo kAhead. So many that there is
    // always one for a word that comes instead of the next collective, while this rank is still in
    // the one before: a word without a place would be lost with the connection.
    std::array<Message, kAhead> incoming;
    Message message;    // of the collective that runs
    std::string fault;  // of the connection
  };

  static std::string messages_of(int rank) {
    return fmt::format("the messages of rank {} say why", rank);
  }
  std::string key(int rank) const { return fmt::format("{}.{}", options_.name, rank); }
  Peer& at(int peer) { return peers_[index(peer)]; }

  // Begins behind the own rank, so that not all send to the same one.
  template <class F>
  void for_peers(F f) const {
    for (int i = 1; i < size_; ++i) f((rank_ + i) % size_);
  }

  void allocate() {
    peers_.resize(index(size_));
    sources_.resize(index(size_));
    // Two rounds of a piece from each peer.
    constexpr std::int64_t kMostPiece = std::int64_t{1} << 20;
    constexpr std::int64_t kPage = 4096;
    piece_bytes_ = std::min(kMostPiece, comm::kScratchBytes / (2 * (size_ - 1)) / kPage * kPage);
    scratch_ = std::vector<std::byte>(static_cast<std::size_t>(2 * (size_ - 1) * piece_bytes_));
  }
  std::int64_t piece_elements(const Call& call) const {
    return piece_bytes_ / bytes_of(call.dtype);
  }
  std::byte* scratch(std::int64_t round, int peer) {
    const int place = (peer - rank_ + size_) % size_ - 1;
    return scratch_.data() + (round % 2 * (size_ - 1) + place) * piece_bytes_;
  }

  // Exchanges addresses, connects to all.
  void meet(const Call& mine) {
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
    // In the order of ranks on all of them, so that nobody waits for one that waits for him.
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
        receive(mine, comm::kControlLane, peer, &message, sizeof(Message));
    }
    watcher_ = std::thread([this] { watch(); });
  }

  void compare_memory(const Call& mine, const std::vector<std::string>& values) {
    std::vector<std::vector<std::span<std::byte>>> sizes(index(size_));
    std::vector<std::optional<Call>> calls(index(size_));
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) {
        calls[index(rank)] = mine;
        continue;
      }
      sizes[index(rank)] = sizes_in(values[index(rank)]);
      calls[index(rank)] =
          Call{.collective = Collective::prepare, .registered = sizes[index(rank)]};
    }
    compare(mine, calls);
  }

  // Fails if the calls differ.
  void compare(const Call& mine, const std::vector<std::optional<Call>>& calls) {
    if (std::ranges::all_of(calls, [&](const auto& call) { return comm::is_same(*call, mine); }))
      return;
    fail(mine, "ranks called different collectives", rank_,
         "every rank must make the same calls in the same order", comm::calls_text(calls));
  }

  // Returns when all ranks have entered with the same call and, of a small all-reduce, their data.
  void enter(const Call& mine) {
    if (!failure_.empty()) rethrow(mine.collective);
    ++number_;
    outgoing_.kind = Message::Kind::call;
    outgoing_.collective = static_cast<std::int32_t>(mine.collective);
    outgoing_.dtype = static_cast<std::int32_t>(mine.dtype);
    outgoing_.elements = mine.elements;
    outgoing_.number = number_;
    // What a peer said before its connection ended counts, so a fault is told after that.
    for_peers([&](int peer) {
      if (module_.send(link_, peer, comm::kControlLane, &outgoing_, sizeof outgoing_,
                       error_.data()) != 0)
        at(peer).fault = error_.data();
    });
    bool fine = true;
    for_peers([&](int peer) {
      Peer& other = at(peer);
      if (module_.wait_received(link_, peer, comm::kControlLane, error_.data()) != 0) {
        if (other.fault.empty()) other.fault = error_.data();
        other.message.number = 0;
        fine = false;
        return;
      }
      Message& incoming = other.incoming[(number_ - 1) % kAhead];
      other.message = incoming;
      fine = fine && is_call(mine, other.message);
      // A peer may have done its part and be gone: then the next collective says so.
      module_.receive(link_, peer, comm::kControlLane, &incoming, sizeof incoming, error_.data());
    });
    if (!fine) tell_failure(mine);
    for_peers([&](int peer) {
      if (!at(peer).fault.empty()) fail_by_connection(mine, peer, at(peer).fault);
      wait_sent(mine, comm::kControlLane, peer);
    });
  }

  bool is_call(const Call& mine, const Message& message) const {
    return message.kind == Message::Kind::call && message.number == number_ &&
           message.collective == static_cast<std::int32_t>(mine.collective) &&
           message.dtype == static_cast<std::int32_t>(mine.dtype) &&
           message.elements == mine.elements;
  }

  // Of an entrance where not all came, or with different calls.
  [[noreturn]] void tell_failure(const Call& mine) {
    std::vector<std::optional<Call>> calls(index(size_));
    calls[index(rank_)] = mine;
    for_peers([&](int peer) {
      const Message& message = at(peer).message;
      if (message.number != number_ || message.kind != Message::Kind::call) return;
      calls[index(peer)] = Call{.collective = static_cast<Collective>(message.collective),
                                .dtype = static_cast<DType>(message.dtype),
                                .elements = message.elements};
    });
    const std::string who = comm::calls_text(calls);
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
    throw Error(ExitCode::internal, comm::name_of(mine.collective), "messages out of order");
  }

  // This rank's last word, in the place of its next collective.
  void say(Message::Kind kind, const std::string& text, int origin) {
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
      module_.send(link_, peer, comm::kControlLane, &last_, sizeof last_, error_.data());
    });
    module_.linger(link_, comm::kControlLane, kLingerMilliseconds);
  }

  void all_reduce_small(const Call& mine) {
    const auto bytes = static_cast<std::size_t>(mine.bytes());
    std::memcpy(outgoing_.data.data(), mine.in, bytes);
    enter(mine);
    for (int rank = 0; rank < size_; ++rank)
      sources_[index(rank)] = rank == rank_ ? outgoing_.data.data() : at(rank).message.data.data();
    comm::sum_in_order(mine.dtype, sources_, mine.elements, std::span(&mine.out, 1));
  }

  // part(round, rank): what of `data` is that rank's to sum; it comes to result(round). The next
  // round is on its way while one is summed. spread: the sums go to all ranks, in the place of what
  // was summed.
  template <class PartOf, class Result>
  void sum_in_rounds(const Call& mine, std::int64_t rounds, PartOf part, std::byte* data,
                     Result result, bool spread) {
    const std::int64_t size = bytes_of(mine.dtype);
    const auto begin = [&](std::int64_t round) {
      const std::int64_t own = part(round, rank_).count * size;
      for_peers([&](int peer) {
        const Part theirs = part(round, peer);
        if (own > 0) receive(mine, comm::kScatterLane, peer, scratch(round, peer), own);
        // Nothing comes there before the peer has had, and summed, what is sent from there.
        if (spread && theirs.count > 0)
          receive(mine, comm::kGatherLane, peer, data + theirs.first * size, theirs.count * size);
      });
      for_peers([&](int peer) {
        const Part theirs = part(round, peer);
        if (theirs.count > 0)
          send(mine, comm::kScatterLane, peer, data + theirs.first * size, theirs.count * size);
      });
    };
    begin(0);
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) begin(round + 1);
      const Part own = part(round, rank_);
      if (own.count == 0) continue;
      for_peers([&](int peer) {
        wait_received(mine, comm::kScatterLane, peer);
        sources_[index(peer)] = scratch(round, peer);
      });
      sources_[index(rank_)] = data + own.first * size;
      std::byte* const out = result(round);
      comm::sum_in_order(mine.dtype, sources_, own.count, std::span(&out, 1));
      if (spread)
        for_peers([&](int peer) { send(mine, comm::kGatherLane, peer, out, own.count * size); });
    }
    for (std::int64_t round = 0; round < rounds; ++round) {
      const bool own = part(round, rank_).count > 0;
      for_peers([&](int peer) {
        const bool theirs = part(round, peer).count > 0;
        if (theirs) wait_sent(mine, comm::kScatterLane, peer);
        if (spread && theirs) wait_received(mine, comm::kGatherLane, peer);
        if (spread && own) wait_sent(mine, comm::kGatherLane, peer);
      });
    }
  }

  void send(const Call& mine, Lane lane, int peer, const std::byte* data, std::int64_t bytes) {
    if (module_.send(link_, peer, lane, data, static_cast<std::size_t>(bytes), error_.data()) != 0)
      fail_by_connection(mine, peer, error_.data());
  }
  void receive(const Call& mine, Lane lane, int peer, void* data, std::int64_t bytes) {
    if (module_.receive(link_, peer, lane, data, static_cast<std::size_t>(bytes), error_.data()) !=
        0)
      fail_by_connection(mine, peer, error_.data());
  }
  void wait_sent(const Call& mine, Lane lane, int peer) {
    if (module_.wait_sent(link_, peer, lane, error_.data()) != 0)
      fail_by_connection(mine, peer, error_.data());
  }
  void wait_received(const Call& mine, Lane lane, int peer) {
    if (module_.wait_received(link_, peer, lane, error_.data()) != 0)
      fail_by_connection(mine, peer, error_.data());
  }

  // The rank that failed first may be another one, and has perhaps said why.
  [[noreturn]] void fail_by_connection(const Call& mine, int peer, const std::string& fault) {
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

  // This rank's last word. Afterwards no memory is touched: the caller may free it.
  [[noreturn]] void fail(const Call& mine, const std::string& what, int origin,
                         const std::string& fix = "", const std::string& who = "") {
    failure_ = what + who;
    fix_ = fix;
    say(Message::Kind::failed, what, origin);
    disconnect();
    rethrow(mine.collective);
  }

  [[noreturn]] void rethrow(Collective collective) const {
    throw Error(ExitCode::comm_error, comm::name_of(collective), failure_, fix_);
  }

  void need_prepared(Collective collective) const {
    const char* name = comm::name_of(collective);
    if (thread_ == std::thread::id{}) {
      throw Error(ExitCode::internal, name, "comes before prepare");
    }
    if (thread_ != std::this_thread::get_id()) {
      throw Error(ExitCode::internal, name, "comes from another thread than prepare");
    }
    if (!failure_.empty()) rethrow(collective);
  }

  // A machine that lost its power ends no connection here; the store notices.
  void watch() {
    std::unique_lock lock(mutex_);
    bool was_lost = false;
    while (!watched_.wait_for(lock, kWatchEvery, [&] { return ended_; })) {
      lock.unlock();
      const bool lost = store_.lost().has_value();
      lock.lock();
      // Only the second time: what it says itself goes on its connections.
      if (lost && was_lost && !ended_) module_.release(link_);
      was_lost = lost;
    }
  }

  void disconnect() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    watched_.notify_all();
    if (watcher_.joinable()) watcher_.join();
    if (link_ != nullptr) module_.close(link_);
    link_ = nullptr;
  }

  const GlooModule& module_;
  const int rank_;
  const int size_;
  Store& store_;
  const GlooOptions options_;

  GlooLink* link_ = nullptr;
  bool told_ = false;  // in the store
  bool prepared_ = false;
  std::thread::id thread_;
  std::uint64_t number_ = 0;  // of collectives that this rank has entered
  std::string failure_;       // empty: none
  std::string fix_;
  std::array<char, comm::kErrorBytes> error_{};

  std::vector<Peer> peers_;
  Message outgoing_;
  Message last_;
  std::vector<const std::byte*> sources_;  // one a rank
  std::int64_t piece_bytes_ = 0;
  std::vector<std::byte> scratch_;

  std::mutex mutex_;
  std::condition_variable watched_;
  bool ended_ = false;
  std::thread watcher_;
};

}  // namespace

std::filesystem::path gloo_module_path() {
  std::error_code fault;
  return std::filesystem::read_symlink("/proc/self/exe", fault).parent_path() / "tessera-gloo.so";
}

const comm::GlooModule& open_gloo(const std::filesystem::path& module) {
  const auto refuse = [&](std::string_view what) {
    throw Error(ExitCode::unsupported, module.string(), what,
                "several ranks need it: build with the Debian package libgloo-dev, and have "
                "libgloo0 on each node");
  };
  void* const library = ::dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* text = ::dlerror();
    std::string what = text != nullptr ? text : "cannot be opened";
    // The loader begins with the path where the file itself is the fault.
    if (const std::string path = module.string() + ": "; what.starts_with(path))
      what.erase(0, path.size());
    refuse(what);
  }
  const auto module_function =
      reinterpret_cast<comm::GlooModuleFunction*>(::dlsym(library, comm::kGlooModuleSymbol));
  if (module_function == nullptr) refuse("is no module of the trainer");
  const comm::GlooModule* const opened = module_function();
  if (opened->version != comm::kGlooModuleVersion)
    refuse(fmt::format("is of version {}, not {}", opened->version, comm::kGlooModuleVersion));
  return *opened;
}

std::unique_ptr<Communicator> gloo_communicator(const comm::GlooModule& module, int rank, int size,
                                                Store& store, GlooOptions options) {
  if (size < 2 || size > comm::kMostGlooRanks || rank < 0 || rank >= size) {
    throw Error(ExitCode::internal, "gloo_communicator", fmt::format("rank {} of {}", rank, size));
  }
  return std::make_unique<GlooRank>(module, rank, size, store, std::move(options));
}

}  // namespace tessera::trainer
