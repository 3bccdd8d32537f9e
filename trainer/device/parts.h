// SPDX-License-Identifier: Apache-2.0
// The parts of lib/memory/parts.h under trainer's namespace.
#pragma once

#include "lib/memory/parts.h"

namespace tessera::trainer {

using memory::bias_grad_partials;
using memory::kSquaredNormPart;
using memory::norm_partials;
using memory::part_begin;
using memory::row_parts;
using memory::squared_norm_partials;

}  // namespace tessera::trainer
