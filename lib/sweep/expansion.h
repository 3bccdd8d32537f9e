// SPDX-License-Identifier: Apache-2.0
// What expansion gives, points and dropped points, and what it needs to know of the models,
// clusters and GPUs that a grid names. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/names.h"
#include "lib/hardware/gpu.h"
#include "lib/model/model.h"
#include "lib/point/point.h"

namespace tessera::sweep {

struct ClusterGpu {
  std::string name;
  std::int64_t per_node = 1;
  std::int64_t nodes = 0;  // 0: not said, so not checked
};

// What expansion has to know of a cluster.
struct ClusterView {
  std::string name;
  std::vector<ClusterGpu> gpus;
  std::map<std::string, std::string> identity;  // enters every point
  std::int64_t cpus = 0;  // of a node, for the threads of CPU points; 0: not known
};

struct Inventory {
  std::map<std::string, model::Model> models;   // by name as written in the grid
  std::map<std::string, ClusterView> clusters;  // likewise
  hardware::Catalogue catalogue;
};

enum class DropReason : std::uint8_t { constraint, batch, duplicate, memory, capability, cluster };

struct Planned {
  Point point;  // normalised
  std::string label;
  std::string id;
  // Variables that an axis says are not set (`env.NAME: null`). No part of the identity: the point
  // is the one that never had them.
  std::vector<std::string> unset_env;
  // What an automatic microbatch_size became: the largest that fits the device. 0: as the point
  // says, or not known.
  std::int64_t microbatch = 0;
  int repeats = 0;           // 0: as the submission says
  std::string derived_from;  // id of the point that ran out of memory, of which this is the retry
};

struct Dropped {
  DropReason reason = DropReason::constraint;
  std::string detail;
  std::string label;
  std::vector<std::pair<std::string, std::string>> values;  // what was set, as it would be written
};

struct Expansion {
  std::vector<Planned> points;
  std::vector<Dropped> dropped;
  std::vector<std::string> notes;  // rules that matched no point: probably a mistake
};

}  // namespace tessera::sweep

namespace tessera {
template <>
struct Names<sweep::DropReason> {
  static constexpr std::pair<sweep::DropReason, std::string_view> table[] = {
      {sweep::DropReason::constraint, "constraint"}, {sweep::DropReason::batch, "batch"},
      {sweep::DropReason::duplicate, "duplicate"},   {sweep::DropReason::memory, "memory"},
      {sweep::DropReason::capability, "capability"}, {sweep::DropReason::cluster, "cluster"}};
};
}  // namespace tessera
