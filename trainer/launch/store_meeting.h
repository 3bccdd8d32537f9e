// What rank 0 knows of the ranks that meet at its store: who has come, which values are set and
// asked for, who was lost first. It reads no socket: what a peer is to get is added to Peer::out.
//
// Whoever calls holds the mutex of the store (store_server.cpp).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/launch/place.h"
#include "trainer/launch/sockets.h"
#include "trainer/launch/store.h"
#include "trainer/launch/wire.h"

namespace tessera::trainer {

inline constexpr std::chrono::seconds kGreetingLimit{10};

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

class Meeting {
 public:
  // Rank 0 is there. `changed` is told whenever anything below may have another answer.
  Meeting(Place place, std::condition_variable& changed);

  bool has_met() const { return met_; }
  // Who was missing when somebody's time was over; else empty.
  const std::string& not_met() const { return not_met_; }
  const std::optional<Lost>& lost() const { return lost_; }
  [[noreturn]] void throw_lost() const;
  int present() const { return present_; }  // members
  bool is_ending() const { return ending_; }
  const std::string* find(const std::string& key) const;  // its value; null: none

  // False: it was set before.
  bool store(const std::string& key, const std::string& value);
  // The first one is the reason of all that follows.
  void lose(Lost lost);
  // Somebody's time is over.
  void give_up();
  // Rank 0 leaves in peace.
  void end();
  // No peer is there any more.
  void all_gone();

  // Remembered for the message to people, of which the last is enough.
  void refuse(Peer& peer, std::string_view what);
  // It knows the token. Whoever is refused here is told why.
  void admit(Peer& peer);
  // A member's frame. Who says that it fails is added to `said`.
  void handle(Peer& peer, const wire::Frame& frame, std::vector<Lost>& said);
  // A member's connection has ended: how it was lost, if it had not said that it leaves or fails.
  std::optional<Lost> went(const Peer& peer);

 private:
  std::string name_of(int rank) const;
  void broadcast(const wire::Frame& frame);
  wire::Frame lost_frame() const;

  const Place place_;
  std::condition_variable& changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<std::pair<int, std::uint32_t>>> waiting_;  // rank, request
  std::vector<Peer*> members_;  // by rank; null: none, not yet or no more
  std::vector<int> node_of_;    // of those that have ever come, else -1
  std::vector<std::string> host_of_;
  int come_ = 0;
  int present_ = 0;
  bool met_ = false;
  std::string not_met_;
  std::optional<Lost> lost_;
  int refusals_ = 0;
  std::string refusal_;
  bool ending_ = false;
};

}  // namespace tessera::trainer
