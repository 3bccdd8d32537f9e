// SPDX-License-Identifier: Apache-2.0
// Schedules over several streams, for testing the devices that test schedules: one made by hand in
// which every wait is needed, and random ones whose order follows from the definition alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/trainer/device/tracing.h"
#include "trainer/device/device.h"

namespace tessera::trainer::test {

// Four steps of a toy training of four units: inputs over a pinned slot (copy), each unit's shard
// cast into one of two rotating slots (gather), products (compute), gradients added to the shards,
// which go to a pinned slot that the host reads two steps later (reduce). Waits, the host's too,
// are numbered in the order of issue.
struct TrainingOutcome {
  std::vector<float> read;  // all that the host read
  int waits = 0;
};
inline constexpr int kNone = -1;
// around: makes the device that gets the schedule out of the CPU's. trace: if given, is told what
// the host reads and writes.
using Around = std::function<Device&(Device& cpu)>;
TrainingOutcome run_training(const Around& around, Trace* trace, int left_out);

// A step of a random schedule.
struct Step {
  enum class Kind { touch, host, record, wait, host_wait };
  Kind kind = Kind::touch;
  Stream stream = Stream::compute;  // touch, record, wait
  Event event = 0;                  // record, wait, host_wait
  // touch, host: bytes [begin, begin + size) of a small range, written or read.
  int begin = 0;
  int size = 0;
  bool writes = false;

  bool accesses() const { return kind == Kind::touch || kind == Kind::host; }
};
std::vector<Step> random_schedule(std::uint64_t seed, int steps);

// ordered[i][j], i < j: step i is over before step j begins, in every run. By definition this is
// reachability in the graph of streams, records and what the host does.
std::vector<std::vector<bool>> happens_before(const std::vector<Step>& schedule);

}  // namespace tessera::trainer::test
