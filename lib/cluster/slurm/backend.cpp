// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/base/error.h"
#include "lib/base/text.h"
#include "lib/cluster/slurm/scheduler.h"
#include "lib/cluster/slurm/site.h"
#include "lib/cluster/slurm/template.h"

namespace tessera::cluster {

namespace {

ClusterTemplate template_of_site(const hardware::Catalogue& catalogue,
                                 const TemplateChoices& choices) {
  const SlurmSite site = ask_slurm_site();
  if (site.nodes.empty())
    throw Error(ExitCode::refused, "sinfo", "shows no partition that you may use",
                "ask those who run the cluster for access");
  SlurmTemplate made = slurm_template(site, catalogue, choices);
  ClusterTemplate result;
  result.yaml = std::move(made.yaml);
  result.about =
      fmt::format("partition {} of {}, {}, {}", made.partition,
                  site.name.empty() ? "Slurm" : site.name, counted(made.nodes, "node"),
                  made.gpus.empty() ? "no GPU set" : fmt::format("{}", fmt::join(made.gpus, ", ")));
  if (!made.open.empty()) {
    result.notes.push_back(
        fmt::format("Which GPU this is, you must say in the file: {}", fmt::join(made.open, ", ")));
  }
  result.notes.push_back(
      fmt::format("Runs go to {}, the trainer is {}: nodes must see both under these paths.",
                  choices.workspace, choices.trainer));
  return result;
}

}  // namespace

Backend slurm_backend() {
  return {.kind = Kind::slurm,
          .make =
              [](const Cluster& cluster, const std::string& trainer, const std::string& /*user*/) {
                return slurm_scheduler(cluster, {.trainer = trainer});
              },
          .write_template = &template_of_site};
}

}  // namespace tessera::cluster
