// SPDX-License-Identifier: Apache-2.0
// The GPUs that the tests' own libnvidia-ml.so.1 knows.
#pragma once

namespace tessera::trainer::cuda {

inline constexpr const char* kFakeBusId = "0000:3B:00.0";
inline constexpr const char* kFakeBlindBusId = "0000:5E:00.0";  // it knows nothing of this one

}  // namespace tessera::trainer::cuda
