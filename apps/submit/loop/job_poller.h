// SPDX-License-Identifier: Apache-2.0
// Asks a cluster what became of the jobs in flight, as often as is decent, and takes their ends.
#pragma once

#include <set>
#include <string>

#include "apps/submit/loop/submit_state.h"

namespace tessera::submit {

// Holds a reference: the state must outlive it.
class JobPoller {
 public:
  explicit JobPoller(SubmitState& state) : state_(state) {}

  // A cluster that does not answer is asked again later; any other error is the state's fault.
  void poll_if_due();

 private:
  bool new_footer();
  // Whether anything has changed.
  bool poll();
  void show_state(const jobs::LiveJob& live, const cluster::JobState& state);

  SubmitState& state_;
  std::set<std::string> footers_;  // attempts whose footers have been seen
  std::set<std::string> running_;  // ids of jobs that were seen to run
  double last_look_s_ = 0;
  double next_poll_s_ = 0;  // the first at once
  double last_poll_s_ = 0;
  double poll_factor_ = 1;
};

}  // namespace tessera::submit
