#include "lib/cluster/make_scheduler.h"

#include <fmt/format.h>

#include "lib/base/error.h"
#include "lib/cluster/local/scheduler.h"
#include "lib/cluster/slurm/scheduler.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

fs::path local_trainer(const Cluster& cluster) {
  if (!cluster.trainer.path.empty()) return fs::absolute(cluster.trainer.path);
  std::error_code fault;
  const fs::path self = fs::read_symlink("/proc/self/exe", fault);
  return self.parent_path() / "trainer";
}

std::unique_ptr<Scheduler> make_scheduler(const Cluster& cluster, const std::string& user) {
  switch (cluster.kind) {
    case Kind::local:
      return local_scheduler(cluster, local_trainer(cluster), user);
    case Kind::slurm:
      return slurm_scheduler(cluster, {.trainer = local_trainer(cluster).string()});
    case Kind::slurm_rest:
    case Kind::kubernetes:
      break;
  }
  throw Error(ExitCode::refused, cluster.name,
              fmt::format("is of kind {}, which can be planned for but not run on yet",
                          to_text(cluster.kind)),
              "run on a cluster of kind local or slurm");
}

}  // namespace tessera::cluster
