// The two sides of the store: rank 0, which serves it, and the others.
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

// A store to which ranks are still coming.
class MeetingStore : public Store {
 public:
  // Returns when all have come. Error(comm_error), the same on all ranks, if some have not by then
  // or if one is lost.
  virtual void wait_for_all(SteadyClock::time_point until) = 0;
};

inline constexpr std::chrono::milliseconds kMomentToLeave{5000};

// Of rank 0 (store_server.cpp): a thread serves from now on. It never waits for one peer, holds
// little for those that have not proved themselves, and cuts them off after 10 s. `listeners` do
// not block. When it is destroyed the others have `moment` to leave.
std::unique_ptr<MeetingStore> serve_store(std::vector<FileDescriptor> listeners,
                                          const wire::Token& token, const Place& place,
                                          std::chrono::milliseconds moment = kMomentToLeave);

// How rank 0 is to be found, as of now; nothing, and `why`, if that is not known yet.
using FindRankZero = std::function<std::optional<Rendezvous>(std::string& why)>;

// Of the others (store_client.cpp): tries what `find` says, again and again, until rank 0 has
// believed this rank. Error(comm_error) saying what was tried if that takes too long, Error(spec)
// if rank 0 knows the token and refuses this rank: another number of ranks, a rank that has come
// already.
std::unique_ptr<MeetingStore> join_store(const FindRankZero& find, const Place& place,
                                         SteadyClock::time_point until);

// "1.5 s"
std::string seconds_text(std::chrono::milliseconds time);

}  // namespace tessera::trainer
