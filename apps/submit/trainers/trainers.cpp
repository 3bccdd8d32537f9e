// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/trainers/trainers.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/ledger/state.h"

namespace tessera::submit {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

fs::path file_of(const cluster::Cluster& cluster) {
  return ledger::state_dir() / "trainers" / (cluster.name + ".json");
}

// Which trainer the cluster file means: another one has to be asked anew.
Json trainer_of(const cluster::Cluster& cluster) {
  return {{"path", cluster.trainer.path},
          {"image", cluster.trainer.image},
          {"modules", cluster.trainer.modules}};
}

// What cannot be read is as if nothing had been asked.
Json read_known(const cluster::Cluster& cluster) {
  Json nothing = {
      {"tessera_trainers", 1}, {"trainer", trainer_of(cluster)}, {"gpus", Json::object()}};
  try {
    const auto text = read_file_if_exists(file_of(cluster));
    Json known = Json::parse(text.value_or("{}"), nullptr, false);
    const bool fits = known.is_object() && known.value("tessera_trainers", 0) == 1 &&
                      known.value("trainer", Json()) == trainer_of(cluster) &&
                      known["gpus"].is_object();
    return fits ? known : nothing;
  } catch (const Error&) {
    return nothing;
  } catch (const Json::exception&) {
    return nothing;
  }
}

}  // namespace

void remember_trainer(const cluster::Cluster& cluster, const std::string& gpu,
                      const NodeTrainer& trainer) {
  Json known = read_known(cluster);
  known["gpus"][gpu] = {{"utc", trainer.utc},
                        {"node", trainer.node},
                        {"version", trainer.version},
                        {"capabilities", Json::parse(trainer.capabilities_json)}};
  ledger::require_writable_state();
  const fs::path file = file_of(cluster);
  make_directories(file.parent_path());
  write_file_atomically(file, known.dump(2) + "\n");
}

std::optional<NodeTrainer> remembered_trainer(const cluster::Cluster& cluster,
                                              const std::string& gpu) try {
  const Json known = read_known(cluster);
  const auto found = known["gpus"].find(gpu);
  if (found == known["gpus"].end()) return std::nullopt;
  NodeTrainer trainer{.utc = found->at("utc"),
                      .node = found->at("node"),
                      .version = found->at("version"),
                      .capabilities_json = found->at("capabilities").dump(),
                      .can = {}};
  trainer.can =
      parse_capabilities(parse_json(trainer.capabilities_json, file_of(cluster).string()));
  return trainer;
} catch (const Json::exception&) {
  return std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace tessera::submit
