// SPDX-License-Identifier: Apache-2.0
// This machine as a kind of cluster (lib/cluster/backend.h).
#pragma once

#include "lib/cluster/backend.h"

namespace tessera::cluster {

Backend local_backend();

}  // namespace tessera::cluster
