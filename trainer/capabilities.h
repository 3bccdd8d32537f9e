// What this trainer can do, for those who plan with it.
#pragma once

#include <string>

namespace tessera::trainer {

// One JSON object: devices, precisions, sharding, ranks, operations, log schema, and of this
// machine cpu and blas (docs/formats.md, "Run specification").
std::string capabilities_json();

}  // namespace tessera::trainer
