// Runs one thread a rank and tells how each ended.
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
  std::optional<ExitCode> code;  // of the Error that ended the rank, if one did
  std::string message;           // of the exception
};

// body(communicator) on a thread for each; the thread owns its communicator and destroys it when
// the body returns or throws. One outcome a rank. Ends the program if a rank does not end within a
// minute, since its thread cannot be taken back.
std::vector<Outcome> run_ranks(Communicators communicators,
                               const std::function<void(Communicator&)>& body);

// The same, with prepare (of no memory) before the body; every rank must end without exception.
void run_prepared(Communicators communicators, const std::function<void(Communicator&)>& body);

struct Kind {
  std::string name;
  Communicators communicators;
};

// All implementations that can have so many ranks; over Gloo each rank has connections of its own
// to the others, as a process has. Gloo is left out, with a message, where the module is not there.
std::vector<Kind> kinds(int ranks);

}  // namespace tessera::trainer::test
