// SPDX-License-Identifier: Apache-2.0
// Flags that say how a plan is submitted, and those that several verbs take.
#pragma once

#include <cstdint>
#include <optional>
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
};

void declare_submission(CLI::App& app, SubmitRequest& request, SubmissionFlags& flags);

// Fills in the request. Error(usage).
void check_submission(const SubmissionFlags& flags, SubmitRequest& request);

// What the sweep file's limits say and no flag does.
void take_limits_of_sweep(const SubmissionFlags& flags, SubmitRequest& request);

// ---- Flags of several verbs ----

void declare_workspace(CLI::App& app, std::string& workspace);
void declare_catalogue(CLI::App& app, std::string& gpu_catalogue);
void declare_break_lock(CLI::App& app, bool& break_lock);
// What a rerun takes of a submission's flags. `time`: for run_time_s.
void declare_handover(CLI::App& app, SubmitRequest& request, std::string& time);

// Values as they were written, nothing of "". Error(usage).
std::optional<int> positive_count(const std::string& text, const char* flag);
std::optional<std::int64_t> duration_s(const std::string& text, const char* flag);
std::int64_t run_time_s(const std::string& time);  // --time; 0: from an estimate

}  // namespace tessera::apps
