// SPDX-License-Identifier: Apache-2.0
// The table of backends, and lookups in it.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "lib/cluster/backend.h"

namespace tessera::cluster {

// Returns all backends, one for each kind of cluster file.
std::span<const Backend> backends();

const Backend& backend_of(const Cluster& cluster);

// Returns the kinds that can be run on, for messages: "local or slurm".
std::string runnable_kinds();

// Returns the trainer that the cluster file names, else the one beside this program.
std::filesystem::path local_trainer(const Cluster& cluster);

// Makes the scheduler of the file's kind. Error(refused) for a kind that can be planned for but not
// run on.
std::unique_ptr<Scheduler> make_scheduler(const Cluster& cluster, const std::string& user);

// Returns the template of the first backend of `from` that finds its site here. Errors are those of
// Backend::write_template; if no site answers, the first one's.
ClusterTemplate write_template(const hardware::Catalogue& catalogue, const TemplateChoices& choices,
                               std::span<const Backend> from = backends());

}  // namespace tessera::cluster
