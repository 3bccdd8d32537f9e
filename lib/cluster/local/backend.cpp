// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/local/backend.h"

#include "lib/cluster/local/scheduler.h"

namespace tessera::cluster {

Backend local_backend() {
  return {.kind = Kind::local,
          .is_this_machine = true,
          .make = [](const Cluster& cluster, const std::string& trainer,
                     const std::string& user) { return local_scheduler(cluster, trainer, user); },
          .gpus_at_once =
              [](const Cluster& cluster, const GpuEntry& entry) {
                return static_cast<std::int64_t>(local_run_gpus(cluster, entry).size());
              }};
}

}  // namespace tessera::cluster
