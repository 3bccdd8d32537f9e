// A point in the words of flags and sweep files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/point/point.h"

namespace tessera::sweep {

// What would be written to get this point of its model: always seq_len, global_batch,
// microbatch_size, precision, gpus, gpu and cluster; the rest where it is not the default. Sorted
// by key.
std::vector<std::pair<std::string, std::string>> values_of(const Point& point);

}  // namespace tessera::sweep
