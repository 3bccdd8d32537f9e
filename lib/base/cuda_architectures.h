// SPDX-License-Identifier: Apache-2.0
// Which GPUs a build has code for. Pure: no CUDA in it.
//
// Architectures are as CMake writes them: "90-real" is machine code for compute capability 9.0,
// which runs on 9.x from 9.0 on; "120-virtual" is PTX, which a driver translates for every GPU from
// 12.0 on; "80" is both. What has a letter ("90a-real", "100f-real") is counted for exactly its own
// capability, a word ("native", "all") for every one, as nothing tells which it stood for. Compute
// capabilities are numbers: 90 is 9.0.
#pragma once

#include <span>
#include <string>

namespace tessera {

bool has_code_for(std::span<const std::string> architectures, int compute_capability);

// "9.0", "8.0 and newer" or, of several kinds, "9.0, 12.0 and newer".
std::string architectures_text(std::span<const std::string> architectures);

// 90 as "9.0".
std::string compute_capability_text(int compute_capability);

}  // namespace tessera
