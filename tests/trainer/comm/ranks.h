// SPDX-License-Identifier: Apache-2.0
// Runs one thread for each rank and returns how each ended.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "trainer/comm/communicator.h"

namespace tessera::trainer::test {

using Communicators = std::vector<std::unique_ptr<Communicator>>;

struct Outcome {
  std::optional<ExitCode> code;  // of the Error that ended the rank, if any
  std::string message;           // of its exception
};

// Runs body(communicator) on a thread for each rank and returns an outcome for each. The thread
// owns its communicator and destroys it when the body returns or throws. Ends the program if a rank
// does not end within a minute, because its thread cannot be stopped.
std::vector<Outcome> run_ranks(Communicators communicators,
                               const std::function<void(Communicator&)>& body);

// Does the same with prepare (of no memory) before the body; every rank must end without an
// exception.
void run_prepared(Communicators communicators, const std::function<void(Communicator&)>& body);

struct Kind {
  std::string name;
  Communicators communicators;
};

// Returns all implementations that can have so many ranks. Over Gloo each rank has its own
// connections to the others, as a process has. Gloo is left out, with a message, if the module is
// not there.
std::vector<Kind> kinds(int ranks);

}  // namespace tessera::trainer::test
