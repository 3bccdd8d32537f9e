// SPDX-License-Identifier: Apache-2.0
// Where the built-in models, GPUs, clusters and sweeps lie.
#pragma once

#include <filesystem>

namespace tessera {

// $TESSERA_DATA; else the nearest `yamls` (or `share/tessera/yamls`) that holds `models`, upwards
// from the running program's folder: so a build tree finds its source tree and an installed program
// its share folder. Error(input) if there is none.
std::filesystem::path data_folder();

}  // namespace tessera
