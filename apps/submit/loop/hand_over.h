// SPDX-License-Identifier: Apache-2.0
// Hands over the jobs that wait, one by one, and sees to what a cluster may answer: taken, refused,
// busy, silent, or a reply that was lost.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/submit/loop/reconcile.h"
#include "apps/submit/loop/submit_state.h"

namespace tessera::submit {

// Holds a reference: the state must outlive it.
class HandOver {
 public:
  HandOver(SubmitState& state, std::deque<WaitingJob> waiting);

  bool empty() const { return waiting_.empty(); }
  int runs_waiting() const;
  // On the clock of monotonic_seconds(): start_next() is not to be called earlier.
  double not_before_s() const { return not_before_s_; }

  // Starts the next that waits; something must wait. False: not now. An error leaves nothing open
  // that the ledger does not know.
  bool start_next();

 private:
  std::vector<std::string> runs_before() const;
  std::optional<Company> company() const;
  bool hand_over(const cluster::Job& job, jobs::LiveJob& live, const WaitingJob& taken);
  bool look_up(const jobs::LiveJob& live, const WaitingJob& taken,
               const std::function<void()>& started);
  // As a new attempt, at the head of what waits.
  void again(const WaitingJob& taken, int replies_lost);
  void put_back(const jobs::LiveJob& live, const WaitingJob& taken, const std::string& reason);
  // The cluster has not got it: its attempts end here.
  void give_back(const jobs::LiveJob& live, runlog::Status status, const std::string& reason);

  SubmitState& state_;
  std::deque<WaitingJob> waiting_;
  std::vector<std::string> chain_;  // ids of all jobs in flight and of those before, in order
  int refused_jobs_ = 0;
  double not_before_s_ = 0;
};

}  // namespace tessera::submit
