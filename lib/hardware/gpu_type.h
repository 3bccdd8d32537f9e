// SPDX-License-Identifier: Apache-2.0
// Which entries of the GPU catalogue a resource manager's name of a GPU may mean. Slurm's types are
// what an administrator wrote ("h100", "a100_80gb") or what AutoDetect made of the driver's name
// ("nvidia_h100_80gb_hbm3", "a100-sxm4-80gb"). Pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "lib/hardware/catalogue.h"

namespace tessera::hardware {

struct GpuTypeMeaning {
  // All that the name fits: one is certain, of several only the driver's name can tell.
  std::vector<const Gpu*> entries;
  // Where none fits: entries whose name begins with the same word. What is meant may be another.
  std::vector<const Gpu*> relatives;
  bool is_slice = false;  // "a100_3g.20gb": a part of a GPU (MIG), which no entry of a whole one is
};

// Case and separators do not count. A name fits an entry if it is the driver's name with other
// separators, or made of words of the entry's name, of which only those after the first may be
// missing: "v100_32gb" fits two, "a10" is no "a100_40gb". "rtx", "pro" and "quadro" may be missing
// too. A driver's name with its maker is that device alone; an "h200" may be an H200 NVL. The
// pointers are into `catalogue`. An empty name fits nothing.
GpuTypeMeaning meaning_of_type(const Catalogue& catalogue, std::string_view type);

}  // namespace tessera::hardware
