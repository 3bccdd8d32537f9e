// SPDX-License-Identifier: Apache-2.0
// OpenBLAS chooses its kernels by a list of CPU models. For a model that is newer than the library
// it falls back to the kernels of the first 64-bit CPUs, at a fifth of the speed.
#include <cblas.h>

#include <algorithm>
#include <iterator>

#include "trainer/device/device.h"

namespace tessera::trainer {

std::string better_blas_core(std::string_view chosen, std::string_view vector_isa) {
  // Core types whose kernels use AVX2 or more.
  constexpr std::string_view kGood[] = {"Haswell",        "Zen",      "SkylakeX", "Cooperlake",
                                        "SapphireRapids", "Excavator"};
  if (std::ranges::find(kGood, chosen) != std::end(kGood)) return {};
  if (vector_isa == "avx512") return "SkylakeX";
  return vector_isa == "avx2" ? "Haswell" : "";
}

std::string better_blas_core() {
  return better_blas_core(openblas_get_corename(), cpu_device(1)->info().vector_isa);
}

}  // namespace tessera::trainer
