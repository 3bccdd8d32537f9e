// SPDX-License-Identifier: Apache-2.0
// Rank 0's knowledge of the ranks that meet at its store: who has come, which values are set and
// asked for, who was lost first. It reads no socket: bytes for a peer are appended to Peer::out.
//
// The caller holds the mutex of the store (store_server.cpp).
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

// A connection.
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
  SteadyClock::time_point until;  // deadline of the greeting or of the last bytes
  std::string in;                 // bytes of the greeting so far
  std::string hello, answer;
  wire::FrameReader frames;
  std::string out;
  int rank = -1;
  bool told = false;  // it said that it leaves or fails
  bool ended = false;
};

class Meeting {
 public:
  // Rank 0 is present from the start. `changed` is notified whenever an answer below may change.
  Meeting(Place place, std::condition_variable& changed);

  bool has_met() const { return met_; }
  // Returns who was missing when some rank's time was over; empty if nobody's was.
  const std::string& not_met() const { return not_met_; }
  const std::optional<Lost>& lost() const { return lost_; }
  [[noreturn]] void throw_lost() const;
  int present() const { return present_; }  // members
  bool is_ending() const { return ending_; }
  const std::string* find(const std::string& key) const;  // its value; null: none

  // Sets a key. False if it was set before.
  bool store(const std::string& key, const std::string& value);
  // Records a lost rank. The first one is the reason for everything that follows.
  void lose(Lost lost);
  // Records that some rank's time is over.
  void give_up();
  // Tells all that rank 0 leaves in peace.
  void end();
  // Forgets all peers.
  void all_gone();

  // Drops a connection. The message for people names the last one that was refused.
  void refuse(Peer& peer, std::string_view what);
  // Admits a peer that knows the token as a rank, or refuses it and tells it why.
  void admit(Peer& peer);
  // Handles a member's frame. A rank that says that it fails is added to `said`.
  void handle(Peer& peer, const wire::Frame& frame, std::vector<Lost>& said);
  // Handles the end of a member's connection. Returns how it was lost, unless it had said that it
  // leaves or fails.
  std::optional<Lost> went(const Peer& peer);

 private:
  std::string name_of(int rank) const;
  void broadcast(const wire::Frame& frame);
  wire::Frame lost_frame() const;

  const Place place_;
  std::condition_variable& changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<std::pair<int, std::uint32_t>>> waiting_;  // rank, request
  std::vector<Peer*> members_;  // by rank; null: not there
  std::vector<int> node_of_;    // by rank; -1: has never come
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
