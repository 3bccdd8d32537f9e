// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/comm/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "lib/base/error.h"
#include "trainer/comm/call.h"
#include "trainer/comm/sum.h"

namespace tessera::trainer {
namespace {

using comm::Call;
using comm::Collective;

// The meeting place of the ranks. In a collective all ranks enter, each with its call; each does
// its part of the work in the memory of all; all leave. Nothing waits between enter and leave, so a
// rank that is inside comes out, and failures count only when entering: no rank can free its memory
// while another works in it.
class Group {
 public:
  explicit Group(int size) : states_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(states_.size()); }

  // The call of a rank between enter and leave.
  const Call& call(int rank) const { return at(rank).call; }

  // Returns when all ranks have entered with the same call, or throws Error(comm_error).
  void enter(int rank, const Call& call) {
    std::unique_lock lock(mutex_);
    if (failure_.empty()) {
      at(rank).call = call;
      at(rank).waits = true;
      ++waiting_;
      check_others();
    }
    if (failure_.empty() && waiting_ == size()) {
      for (State& state : states_) state.waits = false;
      waiting_ = 0;
      ++entered_;
      changed_.notify_all();
      return;
    }
    const std::uint64_t before = entered_;
    changed_.wait(lock, [&] { return entered_ != before || !failure_.empty(); });
    if (entered_ == before) {
      throw Error(ExitCode::comm_error, comm::name_of(call.collective), failure_, fix_);
    }
  }

  void leave() {
    std::unique_lock lock(mutex_);
    if (++leaving_ == size()) {
      leaving_ = 0;
      ++left_;
      changed_.notify_all();
      return;
    }
    const std::uint64_t before = left_;
    changed_.wait(lock, [&] { return left_ != before; });
  }

  void abort(int rank) {
    const std::lock_guard lock(mutex_);
    fail(fmt::format("rank {} has aborted", rank), messages_of(rank));
  }

  // Marks a rank that makes no more calls: it is a failure once another rank waits for it.
  void end(int rank) {
    const std::lock_guard lock(mutex_);
    at(rank).ended = true;
    if (waiting_ > 0) check_others();
  }

  std::optional<std::string> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_.empty() ? std::nullopt : std::optional<std::string>(failure_);
  }

 private:
  struct State {
    Call call;
    bool waits = false;  // at the entrance
    bool ended = false;
  };

  const State& at(int rank) const { return states_[static_cast<std::size_t>(rank)]; }
  State& at(int rank) { return states_[static_cast<std::size_t>(rank)]; }

  static std::string messages_of(int rank) {
    return fmt::format("the messages of rank {} say why", rank);
  }

  // Fails if a rank is missing for good, or if all have come and their calls differ. Differences
  // are checked only when all are here, so that the error can name the call of each.
  void check_others() {
    for (int other = 0; other < size(); ++other) {
      if (at(other).ended) {
        return fail(fmt::format("rank {} has ended", other), messages_of(other));
      }
    }
    if (waiting_ < size()) return;
    const bool same = std::ranges::all_of(states_, [&](const State& state) {
      return comm::is_same(state.call, states_.front().call);
    });
    if (!same) {
      fail("ranks called different collectives",
           "every rank must make the same calls in the same order");
    }
  }

  // Keeps the first failure: the others follow from it.
  void fail(const std::string& what, const std::string& fix) {
    if (!failure_.empty()) return;
    failure_ = what + waiting_calls();
    fix_ = fix;
    changed_.notify_all();
  }

  // Lists the calls of the waiting ranks.
  std::string waiting_calls() const {
    std::vector<std::optional<Call>> calls(states_.size());
    for (int rank = 0; rank < size(); ++rank) {
      if (at(rank).waits) calls[static_cast<std::size_t>(rank)] = at(rank).call;
    }
    return comm::calls_text(calls);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  int waiting_ = 0;  // at the entrance
  int leaving_ = 0;
  std::uint64_t entered_ = 0;  // collectives that all ranks have entered
  std::uint64_t left_ = 0;     // collectives that all ranks have left
  std::string failure_;        // empty: none
  std::string fix_;
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~ThreadRank() override {
    if (std::uncaught_exceptions() > 0) group_->abort(rank_);
    group_->end(rank_);
  }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void prepare(std::span<const std::span<std::byte>> registered) override {
    if (prepared_) throw Error(ExitCode::internal, "prepare", "was called before");
    thread_ = std::this_thread::get_id();
    sources_.resize(static_cast<std::size_t>(size()));
    results_.resize(static_cast<std::size_t>(size()));
    group_->enter(rank_, {.collective = Collective::prepare, .registered = registered});
    group_->leave();
    prepared_ = true;
  }

  void all_gather(Stream /*stream*/, Tensor shard, Tensor full) override {
    const Call mine = comm::all_gather_call(rank_, size(), shard, full);
    enter(mine);
    const auto bytes = static_cast<std::size_t>(mine.bytes());
    // Each rank begins with its own shard and goes round, so that no two read the same shard at
    // once.
    for (int i = 0; i < size(); ++i) {
      const int other = (rank_ + i) % size();
      const std::byte* const from = group_->call(other).in;
      std::byte* const to = mine.out + bytes * static_cast<std::size_t>(other);
      if (from != to) std::memcpy(to, from, bytes);
    }
    group_->leave();
  }

  void reduce_scatter_sum(Stream /*stream*/, Tensor full, Tensor shard) override {
    const Call mine = comm::reduce_scatter_sum_call(rank_, size(), full, shard);
    enter(mine);
    // No other rank reads this slice of any rank, so the sum may overwrite it.
    for (int other = 0; other < size(); ++other) {
      source(other) = group_->call(other).in + mine.bytes() * rank_;
    }
    comm::sum_in_order(mine.dtype, sources_, mine.elements, std::span(&mine.out, 1));
    group_->leave();
  }

  void all_reduce_sum(Stream /*stream*/, Tensor tensor) override {
    const Call mine = comm::all_reduce_sum_call(tensor);
    enter(mine);
    // One rank sums each element and stores it everywhere: one sum, the same bits. Parts are whole
    // cache lines, so that no two ranks write to the same line.
    const std::int64_t line = 64 / bytes_of(mine.dtype);
    const std::int64_t lines = (mine.elements + line - 1) / line;
    const std::int64_t part = (lines + size() - 1) / size() * line;
    const std::int64_t first = std::min(part * rank_, mine.elements);
    const std::int64_t count = std::min(part, mine.elements - first);
    for (int other = 0; other < size(); ++other) {
      std::byte* const data = group_->call(other).out + first * bytes_of(mine.dtype);
      source(other) = data;
      results_[static_cast<std::size_t>(other)] = data;
    }
    comm::sum_in_order(mine.dtype, sources_, count, results_);
    group_->leave();
  }

  std::optional<std::string> poll() override { return group_->failure(); }
  void abort() override { group_->abort(rank_); }

 private:
  const std::byte*& source(int rank) { return sources_[static_cast<std::size_t>(rank)]; }

  void enter(const Call& call) {
    const char* name = comm::name_of(call.collective);
    if (!prepared_) throw Error(ExitCode::internal, name, "comes before prepare");
    if (thread_ != std::this_thread::get_id()) {
      throw Error(ExitCode::internal, name, "comes from another thread than prepare");
    }
    group_->enter(rank_, call);
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  bool prepared_ = false;
  std::thread::id thread_;
  std::vector<const std::byte*> sources_;  // one for each rank
  std::vector<std::byte*> results_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> threads_communicators(int ranks) {
  if (ranks < 1) {
    throw Error(ExitCode::internal, "threads_communicators", fmt::format("{} ranks", ranks));
  }
  const auto group = std::make_shared<Group>(ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<ThreadRank>(group, rank));
  }
  return communicators;
}

}  // namespace tessera::trainer
