// SPDX-License-Identifier: Apache-2.0
#include "lib/jobs/schedulers.h"

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/cluster/backends.h"

namespace tessera::jobs {

namespace fs = std::filesystem;

namespace {

fs::path copy_of(const fs::path& project_dir, const std::string& name) {
  return project_dir / ".tessera" / "clusters" / (name + ".yaml");
}

}  // namespace

void keep_cluster_file(const fs::path& project_dir, const cluster::Cluster& cluster) {
  const std::string content = read_file(cluster.source);
  const fs::path path = copy_of(project_dir, cluster.name);
  if (read_file_if_exists(path) == content) return;
  make_directories(path.parent_path());
  write_file_atomically(path, content);
}

cluster::Scheduler* Schedulers::find(const std::string& name) {
  const auto known = known_.find(name);
  if (known != known_.end()) return known->second.get();
  std::unique_ptr<cluster::Scheduler>& made = known_[name];
  try {
    const fs::path copy = copy_of(project_dir_, name);
    cluster::Cluster cluster =
        is_file(copy) ? cluster::read_cluster(copy.string()) : cluster::find_cluster(name, name);
    cluster.name = name;
    made = cluster::make_scheduler(cluster, user_);
  } catch (const Error& error) {
    faults_[name] = error.what();
  }
  return made.get();
}

std::string Schedulers::why_not(const std::string& name) const {
  const auto found = faults_.find(name);
  return found != faults_.end() ? found->second : "";
}

}  // namespace tessera::jobs
