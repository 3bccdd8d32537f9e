// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/store_meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/base/error.h"
#include "trainer/launch/roll_call.h"

namespace tessera::trainer {

using wire::Frame;
using wire::Kind;

namespace {

void send(Peer& peer, const Frame& frame) {
  peer.out += wire::frame_bytes(frame);
}

}  // namespace

Meeting::Meeting(Place place, std::condition_variable& changed)
    : place_(std::move(place)),
      changed_(changed),
      members_(static_cast<std::size_t>(place_.ranks)),
      node_of_(members_.size(), -1),
      host_of_(members_.size()) {
  node_of_[0] = place_.node;
  come_ = 1;
}

void Meeting::throw_lost() const {
  throw Error(ExitCode::comm_error, name_of(lost_->rank), lost_->reason);
}

const std::string* Meeting::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found != values_.end() ? &found->second : nullptr;
}

// A new value answers the ranks that have been waiting for its key.
bool Meeting::store(const std::string& key, const std::string& value) {
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

// The first loss is told to all, and ends every wait for a key that will not come.
void Meeting::lose(Lost lost) {
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

void Meeting::give_up() {
  if (met_ || !not_met_.empty()) return;
  not_met_ = missing_ranks(node_of_, place_.nodes);
  if (!refusal_.empty())
    not_met_ += fmt::format("; {} {} refused, the last {}", refusals_,
                            refusals_ == 1 ? "connection was" : "connections were", refusal_);
  broadcast({.kind = Kind::not_met, .value = not_met_});
  changed_.notify_all();
}

void Meeting::end() {
  broadcast({.kind = Kind::end});
  ending_ = true;
}

void Meeting::all_gone() {
  std::ranges::fill(members_, nullptr);
  present_ = 0;
  changed_.notify_all();
}

void Meeting::refuse(Peer& peer, std::string_view what) {
  ++refusals_;
  refusal_ = fmt::format("of {}, which {}", peer.host, what);
  peer.ended = true;
}

// Checks, in this order: same version of the trainer, same numbers of ranks and nodes, a rank that
// has not come yet. A refused peer gets the reason and is closed after that.
void Meeting::admit(Peer& peer) {
  const auto hello = wire::parse_hello(peer.hello);
  std::string why;
  if (!hello) {
    why = "rank 0 is another version of the trainer";
  } else if (hello->ranks != place_.ranks || hello->nodes != place_.nodes) {
    why = fmt::format("rank 0 waits for {} ranks on {} nodes, this one is of {} ranks on {} nodes",
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

void Meeting::handle(Peer& peer, const Frame& frame, std::vector<Lost>& said) {
  switch (frame.kind) {
    case Kind::set:
      return send(
          peer, {.kind = store(frame.key, frame.value) ? Kind::done : Kind::twice, .id = frame.id});
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

// A rank that announced its end is no loss.
std::optional<Lost> Meeting::went(const Peer& peer) {
  members_[static_cast<std::size_t>(peer.rank)] = nullptr;
  --present_;
  if (peer.told) return std::nullopt;
  const std::string& host = host_of_[static_cast<std::size_t>(peer.rank)];
  return Lost{.rank = peer.rank,
              .reason = place_.nodes > 1 ? fmt::format("its connection ended; it ran on {}", host)
                                         : "its connection ended"};
}

std::string Meeting::name_of(int rank) const {
  return rank_name(rank, node_of_[static_cast<std::size_t>(rank)], place_.nodes);
}

void Meeting::broadcast(const Frame& frame) {
  for (Peer* const peer : members_) {
    if (peer != nullptr) send(*peer, frame);
  }
}

Frame Meeting::lost_frame() const {
  return {.kind = Kind::lost,
          .id = static_cast<std::uint32_t>(lost_->rank),
          .key = name_of(lost_->rank),
          .value = lost_->reason};
}

}  // namespace tessera::trainer
