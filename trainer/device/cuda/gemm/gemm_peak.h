// SPDX-License-Identifier: Apache-2.0
// The rate of large GEMMs on this GPU, to read beside its data sheet's peak: clocks fall under
// load, and random data costs more power than zeros.
#pragma once

#include "lib/model/settings.h"
#include "trainer/device/cuda/gemm/gemm.h"
#include "trainer/device/gpu.h"

namespace tessera::trainer::cuda {

// Returns the TFLOP/s of square GEMMs of the dtype that `precision` multiplies in: the best of a
// few sizes, each for its share of `seconds`, on random operands in turn. Waits for them. 0 if
// there is no memory for the smallest size.
double measure_gemm_tflops(Precision precision, double seconds, const GemmOptions& options,
                           cudaStream_t stream);

// The choice as the log shows it.
GpuChoice gpu_choice(const GemmChoice& choice);

}  // namespace tessera::trainer::cuda
