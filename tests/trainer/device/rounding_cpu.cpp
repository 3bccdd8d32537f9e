// The rounding points are tested with each table of kernels that this CPU can run.
#include <doctest/doctest.h>

#include "tests/trainer/device/rounding.h"

namespace tessera::trainer::test {

void with_each_device(const std::function<void(Bench&)>& f) {
  for (const cpu::Kernels* kernels : cpu::supported_kernels()) {
    const std::string isa = kernels->isa;
    CAPTURE(isa);
    Bench bench(cpu::cpu_device(2, *kernels));
    f(bench);
  }
}

}  // namespace tessera::trainer::test
