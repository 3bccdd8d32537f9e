// SPDX-License-Identifier: Apache-2.0
// `collect show`: a run for people: what it was told, what its log holds, and how its MFU and HFU
// come about, term by term.
#pragma once

#include <string>

#include "collect/collection.h"

namespace tessera::collect {

std::string show(const ShownRun& shown);

}  // namespace tessera::collect
