// A point: all that changes the measurement, and nothing else. Its identity is a hash of it
// (identity.h).
//
// Not in it: label, project, repeats, time limit, priority, partition, paths, software.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "lib/base/tree.h"
#include "lib/model/settings.h"
#include "lib/model/shape.h"

namespace tessera::sweep {

inline constexpr std::int64_t kAutoMicrobatch = 0;  // written as "auto": the largest that fits

// A member with a default value here is left out of the hashed form while it equals that default;
// such defaults must never change, and a member added later must default to what older versions
// did. So ids never change.
struct Point {
  model::Shape model;
  double lr = 1e-4;  // peak learning rate of the model's recipe
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;     // sequences a step, over all devices
  std::int64_t microbatch_size = 0;  // sequences a device computes at once, or kAutoMicrobatch
  Precision precision = Precision::amp_bf16;
  MixedPrecision mixed_precision = MixedPrecision::default_;
  Sharding sharding_strategy = Sharding::full_shard;
  std::int64_t hybrid_group = 0;  // devices a shard group, 0: not hybrid
  Checkpointing activation_checkpointing = Checkpointing::none;
  std::string checkpointing_blocks = "all";  // that it is for: lib/schedule/recompute.h
  bool activation_cpu_offload = false;
  Attention attention = Attention::automatic;
  std::int64_t gpus = 1;  // devices in all; ranks on a CPU
  std::int64_t nodes = 1;
  std::string gpu = "cpu";        // name in the GPU catalogue, or "cpu"
  std::string cluster = "local";  // name of the cluster file
  std::int64_t threads = 0;       // CPU only: threads a rank; 0 on a GPU
  std::int64_t steps = 30;        // optimizer steps in all
  std::int64_t warmup = 10;       // of them not measured
  bool exact_steps = false;       // steps and warmup are not minima but exact
  bool deterministic = false;
  bool fused_gelu = false;  // matrix products do a gelu_tanh themselves
  std::string data = "synthetic";
  std::uint64_t seed = 17;
  std::map<std::string, std::string> env;       // environment axes
  std::map<std::string, std::string> identity;  // of the cluster file, what it declares as identity
  bool operator==(const Point&) const = default;
};

// All fields (norm_eps and rope_theta of the model unless they are the default), keys sorted, no
// spaces: what specification and header record hold.
std::string point_json(const Point& point);

// The hashed form: as point_json without the fields that equal their default; `model` likewise
// (n_kv_heads = n_heads, head_dim = d_model / n_heads and the enumerations' first values are its
// defaults).
std::string canonical_json(const Point& point);

// Error(input) at the value's place if its text is no word for blocks ("all", "first-8", ...).
void check_blocks(const Value& blocks);

// Reads either form. Error(input) on unknown keys, wrong types or impossible values.
Point parse_point(const Value& value);

}  // namespace tessera::sweep
