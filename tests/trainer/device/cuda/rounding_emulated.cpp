// The rounding points are tested with emulated GPU kernels, and the CPU device where there are
// none.
#include "tests/trainer/device/cuda/emulated_device.h"
#include "tests/trainer/device/rounding.h"

namespace tessera::trainer::test {

void with_each_device(const std::function<void(Bench&)>& f) {
  Bench bench(emulated_device());
  f(bench);
}

}  // namespace tessera::trainer::test
