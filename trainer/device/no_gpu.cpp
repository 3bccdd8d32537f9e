// SPDX-License-Identifier: Apache-2.0
// The functions of gpu.h for a trainer that was built without a CUDA toolkit.
#include "lib/base/error.h"
#include "trainer/device/gpu.h"

namespace tessera::trainer {

namespace {
constexpr const char* kNone = "this trainer was built without CUDA";
}  // namespace

std::unique_ptr<Gpu> open_gpu(const GpuOptions& /*options*/) {
  throw Error(ExitCode::unsupported, "gpu", kNone, "cpu, or a build where nvcc is");
}

std::filesystem::path default_choice_cache() {
  return {};
}

GpuPresence gpu_presence() {
  GpuPresence presence;
  presence.why_none = kNone;
  return presence;
}

}  // namespace tessera::trainer
