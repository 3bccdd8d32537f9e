// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/scheduler.h"

#include <fmt/format.h>

namespace tessera::cluster {

std::string element_id(const std::string& array_job, std::size_t index) {
  return fmt::format("{}_{}", array_job, index);
}

}  // namespace tessera::cluster
