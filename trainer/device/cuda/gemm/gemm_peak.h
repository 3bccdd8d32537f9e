// What large matrix products reach on this GPU, to be read beside its data sheet's peak: clocks
// fall under load, and faster on random data than on zeros.
#pragma once

#include "lib/model/settings.h"
#include "trainer/device/cuda/gemm/gemm.h"
#include "trainer/device/gpu.h"

namespace tessera::trainer::cuda {

// TFLOP/s of square products of the dtype that `precision` multiplies in: the best of a few sizes,
// each for its part of `seconds`, operands random and turn and turn about. Waits for them. 0 if
// there is no memory for the smallest.
double measure_gemm_tflops(Precision precision, double seconds, const GemmOptions& options,
                           cudaStream_t stream);

// For the log.
GpuChoice gpu_choice(const GemmChoice& choice);

}  // namespace tessera::trainer::cuda
