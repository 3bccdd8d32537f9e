// SPDX-License-Identifier: Apache-2.0
// Sweep files: `tessera_sweep: 1` YAML (docs/formats.md, "Sweep").
#pragma once

#include <string>

#include "lib/sweep/grid.h"

namespace tessera::sweep {

// Error(input) with file, line and column. Relative model files are looked for beside the sweep
// file first, then in the current folder; relative token files are those beside the sweep file.
Grid parse_sweep(const Value& value, const std::string& source);
Grid read_sweep(const std::string& path);

// The place of the file `name`: as given if it exists, else built-in ("quickstart" is
// yamls/sweeps/quickstart.yaml). Error(input) with the nearest built-in name.
std::string find_sweep(const std::string& name, const std::string& where);

}  // namespace tessera::sweep
