// Runs a case on a device, as a trainer would: prepare, seal, run.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/trainer/device/cases.h"
#include "trainer/device/cpu/cpu_device.h"

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

// On a new device, with memory of it from `allocate`.
Outcome run_case(const Case& c, DType dtype, Device& device, const Arena::Allocate& allocate,
                 const Overrides& overrides = {});

// On the CPU. kernels: null for the best.
Outcome run_case(const Case& c, DType dtype, int threads = 2, const Overrides& overrides = {},
                 const cpu::Kernels* kernels = nullptr);

// ||a - b|| / ||b||, or infinity if any element of either is not finite or the sizes differ.
double distance(const Values& a, const Values& b);

}  // namespace tessera::trainer::test
