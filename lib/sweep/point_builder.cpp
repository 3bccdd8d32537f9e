// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/point_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/hardware/catalogue.h"
#include "lib/point/data_path.h"
#include "lib/point/fields.h"
#include "lib/point/identity.h"
#include "lib/schedule/config.h"

namespace tessera::sweep {

namespace {

// Bytes of a point's JSON. A longer point is Error(input).
constexpr std::size_t kLongestPoint = 2500;

using Values = std::map<std::string, Scalar, std::less<>>;

// Returns a field's value as its axis has it. 0 becomes nothing if the field has a word for 0
// (auto).
template <class T>
Scalar scalar_of(const Field<T>& field, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(to_text(value));
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    return value;
  } else {
    if (value == 0 && !field.zero.empty()) return std::monostate{};
    return static_cast<std::int64_t>(value);
  }
}

// The other way: `value` is one that the axis has read.
template <class T>
void set_scalar(const Scalar& value, T& target) {
  if constexpr (std::is_enum_v<T>) {
    target = *from_text<T>(std::get<std::string>(value));
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string>) {
    target = std::get<T>(value);
  } else {
    const auto* number = std::get_if<std::int64_t>(&value);
    target = number == nullptr ? 0 : static_cast<T>(*number);
  }
}

// What a point has that nobody said otherwise.
const Values& tool_defaults() {
  static const Values defaults = [] {
    const Point point;
    Values usual;
    each_axis_field([&](const auto& field) {
      if (field.unset == Unset::usual) usual.emplace(field.key, scalar_of(field, field.in(point)));
    });
    return usual;
  }();
  return defaults;
}

// No less than the bytes of the point's JSON, without writing it.
std::size_t most_bytes(const Point& point) {
  constexpr std::size_t kOfModel = 600;    // names, numbers and words, each at its longest
  constexpr std::size_t kOfNumber = 30;    // or word, with what stands around it
  constexpr std::size_t kOfCharacter = 6;  // "\u001f"
  std::size_t bytes = kOfModel;
  std::size_t characters = 0;
  each_field([&]<class T>(const Field<T>& field) {
    bytes += field.key.size() + kOfNumber;
    if constexpr (std::is_same_v<T, std::string>) characters += field.in(point).size();
  });
  for (const auto* texts : {&point.env, &point.identity}) {
    for (const auto& [key, value] : *texts) characters += key.size() + value.size() + 1;
  }
  return bytes + kOfCharacter * characters;
}

// Returns a * b; nothing if it is more than 2^40.
std::optional<std::int64_t> product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  constexpr std::int64_t kLargestProduct = std::int64_t{1} << 40;
  if (__builtin_mul_overflow(a, b, &result) || result > kLargestProduct) return std::nullopt;
  return result;
}

}  // namespace

PointBuilder::PointBuilder(const Inventory& inventory, std::string where)
    : inventory_(&inventory), where_(std::move(where)) {}

// Returns the value of an axis. Error(input) names the flag that gives it.
const Scalar& PointBuilder::required(std::string_view key, std::string_view flag) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    throw Error(ExitCode::input, where_, fmt::format("a point lacks '{}'", key),
                fmt::format("give {} or set it in the sweep file", flag));
  }
  return found->second;
}

const model::Model& PointBuilder::model() const {
  const auto found = inventory_->models.find(get<std::string>("model"));
  if (found == inventory_->models.end()) {
    throw Error(ExitCode::input, where_,
                fmt::format("unknown model '{}'", get<std::string>("model")));
  }
  return found->second;
}

const ClusterView& PointBuilder::cluster() const {
  const auto found = inventory_->clusters.find(get<std::string>("cluster"));
  if (found == inventory_->clusters.end()) {
    throw Error(ExitCode::input, where_,
                fmt::format("unknown cluster '{}'", get<std::string>("cluster")));
  }
  return found->second;
}

const ClusterGpu* PointBuilder::cluster_gpu() const {
  const auto& gpus = cluster().gpus;
  const auto found = std::ranges::find(gpus, get<std::string>("gpu"), &ClusterGpu::name);
  return found == gpus.end() ? nullptr : &*found;
}

void PointBuilder::complete() {
  for (const auto& [key, value] : tool_defaults()) values_.try_emplace(key, value);
  required("model", "-m");
  required("seq_len", "-s or --seq_lens");
  required("batch", "-b, --batch_sizes or --microbatch_size,");
  // A cluster with one kind of GPU decides which it is.
  if (!values_.contains("gpu")) {
    const auto& gpus = cluster().gpus;
    if (gpus.size() != 1) {
      throw Error(ExitCode::input, where_,
                  fmt::format("cluster '{}' has {} kinds of GPU and the point does not say which",
                              cluster().name, gpus.size()),
                  "give --gpu_types or set gpu in the sweep file");
    }
    values_["gpu"] = gpus.front().name;
  }
  // Without a number a point takes one whole node; on a CPU, one rank.
  if (!values_.contains("gpus")) {
    const ClusterGpu* gpu = cluster_gpu();
    const bool on_cpu = get<std::string>("gpu") == "cpu";
    values_["gpus"] = gpu == nullptr || on_cpu ? std::int64_t{1} : gpu->per_node;
  }
}

std::optional<std::int64_t> PointBuilder::microbatch() const {
  const Scalar& value = values_.find("microbatch_size")->second;
  if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
  return std::get<std::int64_t>(value);
}

std::variant<std::int64_t, std::string> PointBuilder::global_batch() const {
  const auto& batch = get<Batch>("batch");
  const auto gpus = get<std::int64_t>("gpus");
  const auto seq_len = get<std::int64_t>("seq_len");
  // Turn each rule into the sequences of one step, over all GPUs.
  std::optional<std::int64_t> samples;
  switch (batch.kind) {
    case Batch::Kind::samples:
      return batch.count;
    case Batch::Kind::per_gpu:
      samples = product(batch.count, gpus);
      break;
    case Batch::Kind::tokens:
      if (batch.count % seq_len != 0) {
        return fmt::format("{} tokens are no whole number of sequences of {}", batch.count,
                           seq_len);
      }
      return batch.count / seq_len;
    case Batch::Kind::accum: {
      if (!microbatch())
        return fmt::format("accum {} needs a microbatch_size that is not auto", batch.count);
      samples = product(batch.count, *microbatch());
      if (samples) samples = product(*samples, gpus);
      break;
    }
  }
  if (!samples) return std::string("the global batch is beyond 2^40 sequences");
  return *samples;
}

// On this machine's CPU, gpus counts ranks: they share what is there. On a cluster they have nodes,
// as GPUs have.
bool PointBuilder::ranks_share_machine() const {
  return get<std::string>("gpu") == "cpu" && cluster().cpus > 0;
}

std::optional<std::int64_t> PointBuilder::nodes() const {
  if (ranks_share_machine()) return 1;
  const ClusterGpu* gpu = cluster_gpu();
  if (gpu == nullptr) return std::nullopt;
  return (get<std::int64_t>("gpus") + gpu->per_node - 1) / gpu->per_node;
}

Operand PointBuilder::lookup(std::string_view name) const {
  const auto number = [](std::optional<std::int64_t> value) -> Operand {
    return value ? Operand(static_cast<double>(*value)) : Operand();
  };
  if (name == "model") return model().name;
  if (name == "data") {
    const auto& data = get<std::string>("data");
    return names_file(data) ? std::filesystem::path(data).filename().string() : data;
  }
  if (name == "cluster") return cluster().name;
  if (name == "params")
    return number(model::parameter_count(model().shape, get<std::int64_t>("seq_len")));
  if (name == "nodes") return number(nodes());
  // These follow from the batch. If the batch is not known, they are absent.
  if (name == "global_batch" || name == "tokens" || name == "device_batch" || name == "accum") {
    const auto batch = global_batch();
    if (!std::holds_alternative<std::int64_t>(batch)) return {};
    const std::int64_t samples = std::get<std::int64_t>(batch);
    const std::int64_t device_batch = samples / get<std::int64_t>("gpus");
    if (name == "global_batch") return number(samples);
    if (name == "tokens")
      return static_cast<double>(samples) * static_cast<double>(get<std::int64_t>("seq_len"));
    if (name == "device_batch") return number(device_batch);
    if (!microbatch()) return {};
    return number((device_batch + *microbatch() - 1) / *microbatch());
  }
  // All other names are axes, with the values that were set.
  const auto found = values_.find(name);
  if (found == values_.end()) return {};
  const Scalar& value = found->second;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return number(*integer);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return {};
}

bool PointBuilder::has(const Setting& setting) const {
  // A number of samples is compared with the resulting batch, another rule with the rule as given.
  if (setting.key == "batch") {
    const auto& asked = std::get<Batch>(setting.value);
    const auto batch = global_batch();
    if (asked.kind == Batch::Kind::samples && std::holds_alternative<std::int64_t>(batch))
      return std::get<std::int64_t>(batch) == asked.count;
    return get<Batch>("batch") == asked;
  }
  if (setting.key == "model") {
    const auto asked = inventory_->models.find(std::get<std::string>(setting.value));
    const std::string& written = std::get<std::string>(setting.value);
    return (asked != inventory_->models.end() ? asked->second.name : written) == model().name;
  }
  const auto found = values_.find(setting.key);
  if (found == values_.end()) return std::holds_alternative<std::monostate>(setting.value);
  return found->second == setting.value;
}

// Records a drop with all values that differ from the tool's defaults.
Dropped PointBuilder::dropped(DropReason reason, std::string detail) const {
  Dropped drop{.reason = reason, .detail = std::move(detail), .label = model().name, .values = {}};
  for (const auto& [key, value] : values_) {
    // Where it is without effect, the point would not have it either (identity.h); what made a
    // duplicate of it is told.
    if (key == "fused_gelu" && reason != DropReason::duplicate &&
        !memory::can_fuse_gelu(model().shape))
      continue;
    const auto usual = tool_defaults().find(key);
    if (usual == tool_defaults().end() || usual->second != value)
      drop.values.emplace_back(key, scalar_text(key, value));
  }
  return drop;
}

// Returns a drop if the cluster has no such GPU or too few of them, or if the last of several nodes
// would be used in part.
std::optional<Dropped> PointBuilder::cluster_fault() const {
  const auto& gpu_name = get<std::string>("gpu");
  const auto gpus = get<std::int64_t>("gpus");
  const ClusterGpu* gpu = cluster_gpu();
  if (gpu == nullptr) {
    return dropped(DropReason::cluster,
                   fmt::format("cluster {} has no {}", cluster().name, gpu_name));
  }
  if (ranks_share_machine()) return std::nullopt;
  if (gpu->nodes != 0 && gpus > gpu->nodes * gpu->per_node) {
    return dropped(DropReason::cluster, fmt::format("cluster {} has {} {}", cluster().name,
                                                    gpu->nodes * gpu->per_node, gpu_name));
  }
  if (gpus > gpu->per_node && gpus % gpu->per_node != 0) {
    return dropped(DropReason::cluster, fmt::format("{} {} are no whole number of nodes of {}",
                                                    gpus, gpu_name, gpu->per_node));
  }
  return std::nullopt;
}

// Copies the axes env.NAME into the point. The names of those that are null go to `unset`.
void PointBuilder::set_environment(Point& point, std::vector<std::string>& unset) const {
  for (auto at = values_.lower_bound(kEnvironmentPrefix);
       at != values_.end() && at->first.starts_with(kEnvironmentPrefix); ++at) {
    const std::string name = at->first.substr(kEnvironmentPrefix.size());
    if (const auto* text = std::get_if<std::string>(&at->second)) {
      point.env[name] = *text;
    } else {
      unset.push_back(name);
    }
  }
}

std::variant<Planned, Dropped> PointBuilder::resolve() const {
  if (auto fault = cluster_fault()) return *std::move(fault);

  Point point;
  each_axis_field([&](const auto& field) {
    const auto said = values_.find(field.key);
    if (said != values_.end()) set_scalar(said->second, field.in(point));
  });
  point.model = model().shape;
  point.lr = model().lr;
  point.nodes = *nodes();
  point.cluster = cluster().name;

  const auto batch = global_batch();
  if (const auto* fault = std::get_if<std::string>(&batch))
    return dropped(DropReason::batch, *fault);
  point.global_batch = std::get<std::int64_t>(batch);
  // Every rank trains the same number of sequences.
  if (point.global_batch % point.gpus != 0) {
    return dropped(DropReason::batch,
                   fmt::format("a global batch of {} is not divisible by {} {}", point.global_batch,
                               point.gpus, point.gpu == "cpu" ? "ranks" : "GPUs"));
  }
  if (const auto reason = hardware::incapable(inventory_->catalogue, point.gpu, point.precision))
    return dropped(DropReason::capability, *reason);

  if (point.sharding_strategy == Sharding::hybrid_shard) {
    // Sharded inside a node, replicated across nodes, is what the mode is for.
    if (point.hybrid_group == 0) point.hybrid_group = point.gpus / point.nodes;
    if (point.gpus % point.hybrid_group != 0) {
      return dropped(
          DropReason::capability,
          fmt::format("hybrid groups of {} do not divide {} GPUs", point.hybrid_group, point.gpus));
    }
  }

  if (point.warmup >= point.steps) {
    throw Error(
        ExitCode::input, where_,
        fmt::format("warmup {} of {} steps leaves nothing to measure", point.warmup, point.steps),
        "give more --steps or a shorter --warmup");
  }
  std::vector<std::string> unset_env;
  set_environment(point, unset_env);
  point.identity = cluster().identity;
  // CPU ranks share this machine's CPUs, unless threads says how many each has.
  if (point.gpu == "cpu" && point.threads == 0) {
    if (cluster().cpus == 0) {
      return dropped(DropReason::cluster,
                     fmt::format("cluster {} does not say how many CPUs a node has, and threads "
                                 "is not set: --set threads=16 sets it",
                                 point.cluster));
    }
    point.threads = std::max<std::int64_t>(1, cluster().cpus / point.gpus);
  }

  Planned planned{.point = normalized(std::move(point)),
                  .label = model().name,
                  .id = {},
                  .unset_env = std::move(unset_env)};
  planned.id = point_id(planned.point);
  // The estimate spares writing the JSON of almost all points.
  if (most_bytes(planned.point) > kLongestPoint &&
      point_json(planned.point).size() > kLongestPoint) {
    throw Error(ExitCode::input, where_,
                fmt::format("a point is longer than {} bytes", kLongestPoint),
                "shorten its environment variables");
  }
  return planned;
}

}  // namespace tessera::sweep
