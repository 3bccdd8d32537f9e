// What the ranks of a run tell each other beside tensors: who they are and what they found before
// the first step, what they measured after the last, and why one failed.
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

// Before its device is made.
struct RankFacts {
  std::string host;
  int node = 0;
  std::string device;
  std::int64_t memory_bytes = 0;       // of the machine; 0: not known
  std::string cpus;                    // that this process may use: "0-7,16"
  std::string software;                // version and commit of the trainer
  std::uint32_t spec_crc32 = 0;        // of the run specification
  std::vector<std::string> addresses;  // of its machine, the likeliest first
  bool operator==(const RankFacts&) const = default;
};

RankFacts facts_of(const sweep::RunSpec& spec, const Place& place, const std::string& device,
                   std::int64_t memory_bytes, const Environment& variable);

// Of each rank its `own`, in rank order. `what` tells two exchanges of a run apart. With one rank,
// `store` null. Error(comm_error) of the store.
std::vector<std::string> exchange(Store* store, const Place& place, const std::string& what,
                                  const std::string& own);
std::vector<RankFacts> exchange_facts(Store* store, const Place& place, const RankFacts& own);

// Error(spec) naming the first rank whose specification, trainer or device is not rank 0's.
void require_alike(const std::vector<RankFacts>& ranks);

// CPUs of rank `rank`'s own: what its process may use, divided among the ranks of its machine that
// may use the same; at least 1.
int cpus_of(const std::vector<RankFacts>& ranks, int rank);
// The least that a rank has of its machine's memory, which the machine's ranks share alike; 0: not
// known.
std::int64_t memory_of_rank(const std::vector<RankFacts>& ranks);
// Where `rank` listens for the others: an address of its machine by which it reaches one on another
// node; loopback if there is one node.
std::string host_of(const std::vector<RankFacts>& ranks, int rank);

// Of the measured steps, as one rank saw them.
struct RankFigures {
  double measured_s = 0;
  double median_s = 0;
  double data_wait_s = 0;
  double startup_s = 0;
  double mem_peak_bytes = 0;
  double cpu_share = 2;  // over 1: not known
};
// Over all ranks: the longest, the largest, the least share. A collective.
RankFigures worst_of(Communicator& communicator, const RankFigures& own);

// How a rank's end is told in the store (Store::leave), and read from there: "exit 13: memory plan:
// 3.00 GiB are needed". What no rank has written so is a communication error.
struct RankFailure {
  ExitCode code = ExitCode::comm_error;
  std::string reason;
};
std::string failure_text(const RankFailure& failure);
RankFailure failure_in(const std::string& text);

}  // namespace tessera::trainer
