// SPDX-License-Identifier: Apache-2.0
// Slurm as a kind of cluster (lib/cluster/backend.h).
#pragma once

#include "lib/cluster/backend.h"

namespace tessera::cluster {

Backend slurm_backend();

}  // namespace tessera::cluster
