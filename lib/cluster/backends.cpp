// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "lib/base/error.h"
#include "lib/cluster/local/backend.h"
#include "lib/cluster/slurm/backend.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

std::span<const Backend> backends() {
  static const std::array kTable{local_backend(), slurm_backend(),
                                 Backend{.kind = Kind::slurm_rest},
                                 Backend{.kind = Kind::kubernetes}};
  return kTable;
}

const Backend& backend_of(const Cluster& cluster) {
  return *std::ranges::find(backends(), cluster.kind, &Backend::kind);
}

std::string runnable_kinds() {
  std::string kinds;
  for (const Backend& backend : backends()) {
    if (backend.can_run())
      kinds += fmt::format("{}{}", kinds.empty() ? "" : " or ", to_text(backend.kind));
  }
  return kinds;
}

fs::path local_trainer(const Cluster& cluster) {
  if (!cluster.trainer.path.empty()) return fs::absolute(cluster.trainer.path);
  std::error_code fault;
  const fs::path self = fs::read_symlink("/proc/self/exe", fault);
  return self.parent_path() / "trainer";
}

std::unique_ptr<Scheduler> make_scheduler(const Cluster& cluster, const std::string& user) {
  const Backend& backend = backend_of(cluster);
  if (backend.can_run()) return backend.make(cluster, local_trainer(cluster).string(), user);
  throw Error(ExitCode::refused, cluster.name,
              fmt::format("is of kind {}, which can be planned for but not run on yet",
                          to_text(cluster.kind)),
              fmt::format("run on a cluster of kind {}", runnable_kinds()));
}

ClusterTemplate write_template(const hardware::Catalogue& catalogue, const TemplateChoices& choices,
                               std::span<const Backend> from) {
  std::optional<Error> silent;
  for (const Backend& backend : from) {
    if (backend.write_template == nullptr) continue;
    try {
      return backend.write_template(catalogue, choices);
    } catch (const Error& error) {
      if (error.code() != ExitCode::unreachable) throw;
      if (!silent) silent = error;
    }
  }
  throw *silent;  // there is always a backend that can be asked
}

}  // namespace tessera::cluster
