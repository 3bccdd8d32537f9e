// SPDX-License-Identifier: Apache-2.0
// The schedulers of a project's clusters, by the names that its points and ledger have.
//
// A submit leaves a copy of each cluster file in <project>/.tessera/clusters: status, cancel, logs
// and collect need no more than the project, wherever the file lay.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "lib/cluster/scheduler.h"

namespace tessera::jobs {

// Error(io).
void keep_cluster_file(const std::filesystem::path& project_dir, const cluster::Cluster& cluster);

class Schedulers {
 public:
  Schedulers(std::filesystem::path project_dir, std::string user)
      : project_dir_(std::move(project_dir)), user_(std::move(user)) {}
  Schedulers(const Schedulers&) = delete;
  Schedulers& operator=(const Schedulers&) = delete;
  virtual ~Schedulers() = default;

  // nullptr where there is no such cluster file or it cannot be run on; `why_not` says so.
  virtual cluster::Scheduler* find(const std::string& name);
  std::string why_not(const std::string& name) const;

 private:
  const std::filesystem::path project_dir_;
  const std::string user_;
  std::map<std::string, std::unique_ptr<cluster::Scheduler>> known_;
  std::map<std::string, std::string> faults_;
};

}  // namespace tessera::jobs
