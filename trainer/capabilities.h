// SPDX-License-Identifier: Apache-2.0
// The trainer's capabilities, for programs that plan with it.
#pragma once

#include <string>

namespace tessera::trainer {

// Returns one JSON object (docs/formats.md, "Capabilities"): devices, precisions, sharding, ranks,
// operations, log schema, what it computes on a GPU wherever that is, and of this machine cpu and
// blas.
std::string capabilities_json();

}  // namespace tessera::trainer
