// SPDX-License-Identifier: Apache-2.0
// The two sides of the store: rank 0, which serves it, and the clients.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/launch/rendezvous.h"
#include "trainer/launch/sockets.h"
#include "trainer/launch/store.h"

namespace tessera::trainer {

// A store that ranks are still joining.
class MeetingStore : public Store {
 public:
  // Returns when all ranks have come. Error(comm_error), the same on all ranks, if some have not
  // come by then or if one is lost.
  virtual void wait_for_all(SteadyClock::time_point until) = 0;
};

inline constexpr std::chrono::milliseconds kMomentToLeave{5000};

// Makes rank 0's side (store_server.cpp): a thread serves from now on. It never waits for a single
// peer, keeps little for those that have not proved themselves, and cuts them off after 10 s.
// `listeners` do not block. In its destructor the others have `moment` to leave.
std::unique_ptr<MeetingStore> serve_store(std::vector<FileDescriptor> listeners,
                                          const wire::Token& token, const Place& place,
                                          std::chrono::milliseconds moment = kMomentToLeave);

// Returns how to find rank 0 at this moment; nothing, and `why`, if that is not known yet.
using FindRankZero = std::function<std::optional<Rendezvous>(std::string& why)>;

// Makes a client's side (store_client.cpp): tries what `find` says, again and again, until rank 0
// has accepted this rank. Error(comm_error) says what was tried if that takes too long. Error(spec)
// if rank 0 knows the token and refuses this rank: another number of ranks, or a rank that has come
// already.
std::unique_ptr<MeetingStore> join_store(const FindRankZero& find, const Place& place,
                                         SteadyClock::time_point until);

// Returns "1.5 s".
std::string seconds_text(std::chrono::milliseconds time);

}  // namespace tessera::trainer
