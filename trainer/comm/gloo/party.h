// SPDX-License-Identifier: Apache-2.0
// A rank among the others over Gloo: how they meet, enter each collective together, tell each other
// that they fail or end, and exchange a collective's messages. gloo.cpp has the sums.
//
// Errors are those of communicator.h. One thread.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "trainer/comm/call.h"
#include "trainer/comm/gloo/module.h"
#include "trainer/comm/gloo/options.h"
#include "trainer/launch/store.h"

namespace tessera::trainer::comm {

// The last words of a rank, in the store and as its reason.
inline constexpr const char* kAborted = "has aborted";
inline constexpr const char* kEnded = "has ended";

// A rank's message when it enters its n-th collective, or its last words instead.
struct Message {
  enum class Kind : std::int32_t { call, ended, failed };
  static constexpr std::size_t kTextBytes = 112;

  Kind kind = Kind::call;
  std::int32_t collective = 0;
  std::int32_t dtype = 0;
  std::int32_t origin = 0;  // failed: the rank that failed first
  std::int64_t elements = 0;
  std::uint64_t number = 0;                                   // n
  std::array<char, kTextBytes> text{};                        // failed: why, ends with 0
  alignas(double) std::array<std::byte, kSmallBytes> data{};  // of a small all-reduce
};
static_assert(std::is_trivially_copyable_v<Message>);

class GlooParty {
 public:
  GlooParty(const GlooModule& module, int rank, int size, Store& store, GlooOptions options);
  // Tells the others that this rank ends or, during an exception, that it aborts; then ends the
  // connections.
  ~GlooParty();
  GlooParty(const GlooParty&) = delete;
  GlooParty& operator=(const GlooParty&) = delete;

  // prepare calls these once, in this order: begin listens; meet exchanges addresses and connects
  // to all.
  void begin(const Call& mine);
  void meet(const Call& mine);

  // Throws unless this thread has prepared this rank and nothing has failed since.
  void need_prepared(Collective collective) const;
  // Returns when all ranks have entered with the same call and, for a small all-reduce, their data.
  void enter(const Call& mine);
  // Data of a small all-reduce: kSmallBytes that go with the next enter, and those that arrived.
  std::byte* own_data() { return outgoing_.data.data(); }
  const std::byte* data_of(int peer) const {
    return peers_[static_cast<std::size_t>(peer)].message.data.data();
  }

  // Messages of the entered collective. If one fails, the collective fails for all ranks.
  void send(const Call& mine, Lane lane, int peer, const std::byte* data, std::int64_t bytes);
  void receive(const Call& mine, Lane lane, int peer, void* data, std::int64_t bytes);
  void wait_sent(const Call& mine, Lane lane, int peer);
  void wait_received(const Call& mine, Lane lane, int peer);

  // Calls f for each peer, from the next rank on, so that not all ranks send to the same one.
  template <class F>
  void for_peers(F f) const {
    for (int i = 1; i < size_; ++i) f((rank_ + i) % size_);
  }

  // poll and abort of Communicator.
  std::optional<std::string> poll();
  void abort();

 private:
  static constexpr std::size_t kAhead = 3;
  struct Peer {
    // Where the peer's next messages arrive, message n at n modulo kAhead. There are enough places
    // that one is always free for last words that come instead of the next collective while this
    // rank is still in the one before: without a place they would be lost with the connection.
    std::array<Message, kAhead> incoming;
    Message message;    // of the running collective
    std::string fault;  // of the connection
  };

  std::string key(int rank) const;
  Peer& at(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

  void compare_memory(const Call& mine, const std::vector<std::string>& values);
  // Fails if the calls differ.
  void compare(const Call& mine, const std::vector<std::optional<Call>>& calls);
  bool is_call(const Call& mine, const Message& message) const;
  // Fails an entrance at which ranks are missing or called something else.
  [[noreturn]] void tell_failure(const Call& mine);

  // Sends this rank's last words in the position of its next collective.
  void say(Message::Kind kind, const std::string& text, int origin);
  // Fails because a connection broke. Another rank may have failed first and may have said why.
  [[noreturn]] void fail_by_connection(const Call& mine, int peer, const std::string& fault);
  // Says this rank's last words and throws. Afterwards no memory is touched: the caller may free
  // it.
  [[noreturn]] void fail(const Call& mine, const std::string& what, int origin,
                         const std::string& fix = "", const std::string& who = "");
  [[noreturn]] void rethrow(Collective collective) const;

  // Watches the store: a machine that lost its power ends no connection here, but the store
  // notices.
  void watch();
  void disconnect();

  const GlooModule& module_;
  const int rank_;
  const int size_;
  Store& store_;
  const GlooOptions options_;

  GlooLink* link_ = nullptr;
  bool told_ = false;  // in the store
  bool prepared_ = false;
  std::thread::id thread_;
  std::uint64_t number_ = 0;  // collectives that this rank has entered
  std::string failure_;       // empty: none
  std::string fix_;
  std::array<char, kErrorBytes> error_{};

  std::vector<Peer> peers_;
  Message outgoing_;
  Message last_;

  std::mutex mutex_;
  std::condition_variable watched_;
  bool ended_ = false;
  std::thread watcher_;
};

}  // namespace tessera::trainer::comm
