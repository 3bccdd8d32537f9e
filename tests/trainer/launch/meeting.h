// SPDX-License-Identifier: Apache-2.0
// Ranks that meet as threads of the test, on 127.0.0.1 only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "trainer/launch/place.h"
#include "trainer/launch/store.h"

namespace tessera::trainer::test {

// Far longer than anything takes, even on a busy machine.
inline constexpr std::chrono::milliseconds kLong{60'000};
// Longer than the program may run: a wait of this length fails by ctest's time-out.
inline constexpr std::chrono::milliseconds kHours{4 * 3'600'000};

// Looks up in a map instead of the process's environment.
Environment environment_of(std::map<std::string, std::string> variables);

// Returns the place of rank `rank` of `ranks` by our variables; `nodes` have equal parts, node by
// node.
Place place(int rank, int ranks, int nodes = 1, const std::string& job = "job");

struct Outcome {
  std::optional<ExitCode> code;  // of the Error that ended the rank, if one did
  std::string message;
};

// Runs body(i) on a thread for each i below `count`; returns when all have ended.
std::vector<Outcome> run_threads(int count, const std::function<void(int)>& body);

// Runs open_store in `folder` for each rank, then body(rank, store).
std::vector<Outcome> run_ranks(int ranks, const std::string& folder,
                               const std::function<void(int, Store&)>& body);

// Returns what open_store or another call throws; empty if nothing.
Outcome outcome_of(const std::function<void()>& body);

bool contains(const std::string& text, const std::string& part);

// Waits until the condition holds; after kLong the test fails.
void wait_until(const std::function<bool()>& holds);

// The rendezvous file of attempt 1 once it is there: its one address ("127.0.0.1:4242") and token.
struct Announced {
  int port = 0;
  std::string token;
  std::string text;
};
Announced wait_for_rendezvous(const std::string& folder);

}  // namespace tessera::trainer::test
