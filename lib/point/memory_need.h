// SPDX-License-Identifier: Apache-2.0
// How much memory points need, by the very plan that the trainer allocates (lib/memory): whether
// they fit, and the largest microbatch that does.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "lib/point/point.h"
#include "lib/schedule/config.h"

namespace tessera::sweep {

// What one rank of the point trains, with microbatches of `microbatch` sequences. An automatic
// microbatch_size has to be resolved first.
memory::Config memory_config(const Point& point, std::int64_t microbatch);
memory::Config memory_config(const Point& point);

// Bytes of a device that a plan may fill: of a GPU its memory less the reserve for context and
// libraries, of a CPU nine tenths of the machine's for all its ranks.
std::int64_t gpu_capacity(double memory_gib, double reserve_gib);
std::int64_t cpu_capacity(std::int64_t machine_bytes);
std::int64_t gpu_bytes(double gib);

// "3.25 GiB".
std::string gib_text(std::int64_t bytes);

// Remembers what it has planned: points that differ in nothing that memory depends on are planned
// once. Not for several threads at once.
class MemoryNeeds {
 public:
  // Bytes of the device's memory that a rank of the point needs; on a CPU those in pinned memory
  // too, as they are the same machine's.
  std::int64_t bytes(const Point& point, std::int64_t microbatch);

  // The largest microbatch whose need is at most `capacity`; 0 if even one sequence does not fit.
  std::int64_t largest_microbatch(const Point& point, std::int64_t capacity);

  // Equal for points that need the same.
  static std::string key(const Point& point, std::int64_t microbatch);

  std::size_t planned() const { return known_.size(); }

 private:
  std::unordered_map<std::string, std::int64_t> known_;
};

}  // namespace tessera::sweep
