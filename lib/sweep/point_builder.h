// SPDX-License-Identifier: Apache-2.0
// A point in the making: settings by axis, completed from defaults and the cluster, then resolved.
// Used by expand.cpp only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>

#include "lib/sweep/axes.h"
#include "lib/sweep/constraint.h"
#include "lib/sweep/expansion.h"

namespace tessera::sweep {

class PointBuilder {
 public:
  // `where` is the place of the block that makes the point, for messages. The inventory must
  // outlive the draft.
  PointBuilder(const Inventory& inventory, std::string where);

  void set(const Setting& setting) { values_[setting.key] = setting.value; }
  void set_if_absent(const Setting& setting) { values_.try_emplace(setting.key, setting.value); }

  // Fills in the tool's defaults, and gpu and gpus from the cluster (its only GPU, one node of it;
  // one rank on a CPU). Error(input) if the model or the cluster is not among the inventory, or
  // if the model, the sequence length, the batch or the GPU is not said and cannot be known.
  void complete();

  // Value of an axis or of a derived name, for constraints. After complete().
  Operand lookup(std::string_view name) const;

  // True if the point has this value. After complete().
  bool has(const Setting& setting) const;

  // The normalised point, or why there is none.
  std::variant<Planned, Dropped> resolve() const;

  Dropped dropped(DropReason reason, std::string detail) const;

 private:
  template <class T>
  const T& get(std::string_view key) const {
    return std::get<T>(values_.find(key)->second);
  }
  const Scalar& required(std::string_view key, std::string_view flag) const;
  const model::Model& model() const;
  const ClusterView& cluster() const;
  const ClusterGpu* cluster_gpu() const;  // nullptr: the cluster has no such GPU
  std::optional<std::int64_t> microbatch() const;
  bool ranks_share_machine() const;
  std::optional<std::int64_t> nodes() const;
  // The global batch, or what keeps it from being known.
  std::variant<std::int64_t, std::string> global_batch() const;
  std::optional<Dropped> cluster_fault() const;
  void set_environment(Point& point, std::vector<std::string>& unset) const;

  const Inventory* inventory_;
  std::string where_;
  std::map<std::string, Scalar, std::less<>> values_;
};

}  // namespace tessera::sweep
