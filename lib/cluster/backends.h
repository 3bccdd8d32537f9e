// The table of backends, and what is looked up in it.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "lib/cluster/backend.h"

namespace tessera::cluster {

// One for each kind of cluster file.
std::span<const Backend> backends();

const Backend& backend_of(const Cluster& cluster);

// "local or slurm": the kinds that can be run on.
std::string runnable_kinds();

// The trainer that the cluster file names, else the one beside this program.
std::filesystem::path local_trainer(const Cluster& cluster);

// Error(refused) for a kind that can be planned for but not run on.
std::unique_ptr<Scheduler> make_scheduler(const Cluster& cluster, const std::string& user);

// The template of the first backend of `from` that finds its site here. Errors are those of
// Backend::write_template; if no site answers, the first one's.
ClusterTemplate write_template(const hardware::Catalogue& catalogue, const TemplateChoices& choices,
                               std::span<const Backend> from = backends());

}  // namespace tessera::cluster
