// SPDX-License-Identifier: Apache-2.0
// N ranks that are threads of one process, for tests of what several ranks do.
#pragma once

#include <memory>
#include <vector>

#include "trainer/comm/communicator.h"

namespace tessera::trainer {

// Makes one communicator for each rank, in rank order; each is used by its own thread. Tensors are
// in host memory that all threads see. A collective is complete when it returns; a waiting rank
// sleeps. Each rank sums an equal part of the elements. The communicators may be destroyed in any
// order and on any thread. ranks: 1 or more.
std::vector<std::unique_ptr<Communicator>> threads_communicators(int ranks);

}  // namespace tessera::trainer
