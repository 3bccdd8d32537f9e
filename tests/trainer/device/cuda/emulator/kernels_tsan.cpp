// SPDX-License-Identifier: Apache-2.0
// A program for the thread sanitizer, which instruments the kernels alone. It runs a planted
// kernel, or the cases of the table with every thread of a block in turn.
//
//   kernels_tsan planted NAME
//   kernels_tsan cases        those of TESSERA_CASES, if set: names, one a line
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/trainer/device/cuda/emulator/emulated_device.h"
#include "tests/trainer/device/cuda/emulator/planted.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

void run_planted(std::string_view name) {
  std::vector<float> x(kPlantedFloats);
  planted(name).run(x.data());
}

// Operations without own kernels would only take time: the CPU device is not instrumented.
bool is_watched(const Case& c) {
  if (c.slow || c.name.starts_with("gemm") || c.name.starts_with("attention")) return false;
  const char* const names = std::getenv("TESSERA_CASES");
  return names == nullptr || std::string_view(names).find(c.name + '\n') != std::string_view::npos;
}

void run_cases() {
  for (const Case& c : cases()) {
    if (!is_watched(c)) continue;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto device = emulated_device();
      HostMemory memory;
      run_case(c, dtype, *device, [&](std::int64_t bytes) { return memory(bytes); });
    }
    std::cout << c.name << std::endl;  // flushed: the last one is that of a report
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  if (arguments.size() == 2 && arguments[0] == "planted") {
    run_planted(arguments[1]);
  } else if (arguments.size() == 1 && arguments[0] == "cases") {
    run_cases();
  } else {
    std::cerr << "kernels_tsan: planted NAME, or cases\n";
    return 2;
  }
  return 0;
} catch (const std::exception& e) {
  std::cerr << "kernels_tsan: " << e.what() << '\n';
  return 1;
}
