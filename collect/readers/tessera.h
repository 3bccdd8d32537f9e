// SPDX-License-Identifier: Apache-2.0
// Reads the logs of the bundled trainer (docs/formats.md, "Run log").
#pragma once

#include "collect/readers/reader.h"

namespace tessera::collect {

const Reader& tessera_reader();

}  // namespace tessera::collect
