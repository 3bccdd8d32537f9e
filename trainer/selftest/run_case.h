// SPDX-License-Identifier: Apache-2.0
// Runs a case on a device, as a trainer would: prepare, seal, run.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/selftest/cases.h"

namespace tessera::trainer::test {

// Memory of the host of exactly the sizes asked for, so that a sanitizer sees the first byte
// beyond.
class HostMemory {
 public:
  std::byte* operator()(std::int64_t bytes);

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

struct Outcome {
  std::map<std::string, Values> values;  // of every tensor
  std::vector<std::string> compared;
  std::vector<std::byte> bytes;
  std::vector<std::string> overrun;
};

// With memory of the device from `allocate`, also for its workspace where none is given. Seal::yes:
// a new device, of which this is the last use; no: one that runs several cases, one after another.
enum class Seal : bool { no, yes };
Outcome run_case(const Case& c, DType dtype, Device& device, const CheckArena::Allocate& allocate,
                 const Overrides& overrides = {}, Seal seal = Seal::yes,
                 std::span<std::byte> workspace = {});

// Bytes of all tensors of a case.
std::int64_t case_bytes(const Case& c, DType dtype);

// On the CPU. kernels: null for the best.
Outcome run_case(const Case& c, DType dtype, int threads = 2, const Overrides& overrides = {},
                 const cpu::Kernels* kernels = nullptr);

// ||a - b|| / ||b||, or infinity if any element of either is not finite or the sizes differ.
double distance(const Values& a, const Values& b);

}  // namespace tessera::trainer::test
