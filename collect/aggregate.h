// SPDX-License-Identifier: Apache-2.0
// Puts the repeats of a point together, and rows in order.
#pragma once

#include <vector>

#include "collect/row.h"

namespace tessera::collect {

// One row per (project, id, device found, device count): two devices are never averaged. The row
// is the run with the lower median tokens/s of the ok repeats, whole (of the partial ones if none
// is ok); spread, repeats and attempts are of all. Runs that found no device join the row of their
// id, else make one. In published order.
std::vector<Row> aggregate(std::vector<Row> runs);

// GPU, precision, model size, seq_len, devices, global batch, all descending, as the published
// tables are; then microbatch and the rest, so that the order never depends on the file system.
bool before(const Row& a, const Row& b);

}  // namespace tessera::collect
