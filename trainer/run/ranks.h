// SPDX-License-Identifier: Apache-2.0
// The facts that the ranks of a run exchange beside tensors: who they are and what they found
// before the first step, what they measured after the last, and why one failed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/point/run_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/launch/place.h"
#include "trainer/launch/store.h"

namespace tessera::trainer {

// A rank's facts about itself, before its device is made.
struct RankFacts {
  std::string host;
  int node = 0;
  std::string device;
  std::int64_t memory_bytes = 0;       // of the machine; 0: unknown
  std::string cpus;                    // CPUs this process may use: "0-7,16"
  std::string software;                // the trainer's version and commit
  std::uint32_t spec_crc32 = 0;        // of the run specification
  std::vector<std::string> addresses;  // of its machine, the likeliest first
  bool operator==(const RankFacts&) const = default;
};

RankFacts facts_of(const sweep::RunSpec& spec, const Place& place, const std::string& device,
                   std::int64_t memory_bytes, const Environment& variable);

// Exchanges `own` and returns that of each rank, in rank order. `what` tells two exchanges of a run
// apart. `store` is null with one rank. Throws the store's Error(comm_error).
std::vector<std::string> exchange(Store* store, const Place& place, const std::string& what,
                                  const std::string& own);
std::vector<RankFacts> exchange_facts(Store* store, const Place& place, const RankFacts& own);

// Throws Error(spec) naming the first rank whose specification, trainer or device differs from rank
// 0's.
void require_alike(const std::vector<RankFacts>& ranks);

// Returns the number of rank `rank`'s CPUs: those that its process may use, divided among the ranks
// of its machine that may use the same; at least 1.
int cpus_of(const std::vector<RankFacts>& ranks, int rank);
// Returns the least memory that a rank has when a machine's ranks share its memory equally; 0:
// unknown.
std::int64_t memory_of_rank(const std::vector<RankFacts>& ranks);
// Returns where `rank` listens for the others: an address of its machine that reaches another node;
// loopback if there is one node.
std::string host_of(const std::vector<RankFacts>& ranks, int rank);

// One rank's figures of the measured steps.
struct RankFigures {
  double measured_s = 0;
  double median_s = 0;
  double data_wait_s = 0;
  double startup_s = 0;
  double mem_peak_bytes = 0;
  double cpu_share = 2;  // over 1: unknown
};
// Returns the worst of all ranks: the longest times, the most memory, the least share. A
// collective.
RankFigures worst_of(Communicator& communicator, const RankFigures& own);

// A rank's failure as the store carries it (Store::leave): "exit 13: memory plan: 3.00 GiB are
// needed". A text of another form is a communication error.
struct RankFailure {
  ExitCode code = ExitCode::comm_error;
  std::string reason;
};
std::string failure_text(const RankFailure& failure);
RankFailure failure_in(const std::string& text);

}  // namespace tessera::trainer
