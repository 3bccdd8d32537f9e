// Flags that say how a plan is submitted.
#pragma once

#include <string>

#include "apps/submit/request.h"

namespace CLI {
class App;
}

namespace tessera::apps {

// As written, what is no plain text or switch of the request.
struct SubmissionFlags {
  std::string repeats;
  std::string max_parallel;
  std::string pack;
  std::string time;
  std::string rate;
  std::string max_in_flight;
  std::string max_gpu_hours;
  std::string max_failures;
  std::string attempts;
  std::string attempt;
  std::string patience;
};

void declare_submission(CLI::App& app, SubmitRequest& request, SubmissionFlags& flags);

// Fills in the request. Error(usage).
void check_submission(const SubmissionFlags& flags, SubmitRequest& request);

// What the sweep file's limits say and no flag does.
void take_limits_of_sweep(const SubmissionFlags& flags, SubmitRequest& request);

}  // namespace tessera::apps
