// SPDX-License-Identifier: Apache-2.0
// A point: all that changes the measurement, and nothing else; each field said once. All that
// treats fields alike walks the table below: JSON and identity (point.h), sweep axes and their
// values, drops, the effective record, rows and columns.
//
// Not in a point: label, project, repeats, time limit, priority, partition, paths, software.
//
// A new setting is a member with its default, a row with Written::if_set, and the code that acts on
// it: docs/architecture.md, "Add a setting".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "lib/base/tree.h"
#include "lib/model/settings.h"
#include "lib/model/shape.h"

namespace tessera::sweep {

inline constexpr std::int64_t kAutoMicrobatch = 0;  // written as "auto": the largest that fits

// A default never changes, and that of a member added later is what older versions did: so ids,
// which leave defaults out, never change. What each member is, its row says.
struct Point {
  model::Shape model;
  double lr = 1e-4;  // peak learning rate of the model's recipe; in JSON part of the model
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;
  std::int64_t microbatch_size = 0;  // or kAutoMicrobatch
  Precision precision = Precision::amp_bf16;
  MixedPrecision mixed_precision = MixedPrecision::default_;
  Sharding sharding_strategy = Sharding::full_shard;
  std::int64_t hybrid_group = 0;
  Checkpointing activation_checkpointing = Checkpointing::none;
  std::string checkpointing_blocks = "all";  // lib/schedule/recompute.h
  bool activation_cpu_offload = false;
  Attention attention = Attention::automatic;
  std::int64_t gpus = 1;
  std::int64_t nodes = 1;
  std::string gpu = "cpu";
  std::string cluster = "local";
  std::int64_t threads = 0;
  std::int64_t steps = 30;
  std::int64_t warmup = 10;
  bool exact_steps = false;
  bool deterministic = false;
  bool fused_gelu = false;
  std::string data = "synthetic";
  std::uint64_t seed = 17;
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> identity;
  bool operator==(const Point&) const = default;
};

// Which JSON forms of a point (point.h) hold a field that equals its default. Ids hang on it, so a
// field's never changes.
enum class Written : std::uint8_t {
  always,   // both; a point without the field cannot be read
  in_full,  // the full form
  if_set,   // neither, so that trainers older than the field can read the point: any new field
};

// What a point of a sweep has where nobody sets the field.
enum class Unset : std::uint8_t {
  usual,      // its default
  completed,  // what the cluster or the machine gives (lib/sweep/point_builder.h)
  no_axis,    // nobody can set it by its key: other axes and the cluster decide
};

// What the log of a run says of the field, beside the point in its header.
enum class Logged : std::uint8_t {
  as_asked,  // the value that ran: the asked one, or the trainer refuses the point
  decided,   // the value that ran: the trainer's choice
  no,        // nothing, or in other words
};

inline constexpr std::int64_t kLargestInteger = std::int64_t{1} << 40;

// The numbers that people may write. Programs may write up to kLargestInteger, and always the
// default.
struct Range {
  std::int64_t lowest = 0;
  std::int64_t highest = kLargestInteger;
};

template <class T>
struct Field {
  std::string_view key;  // in JSON, flags, sweep files, records and columns alike
  T Point::* member;
  Written written;
  std::string_view help;  // what it is, with its unit
  Unset unset = Unset::usual;
  Logged logged = Logged::as_asked;
  Range range = {};                       // of an integer
  std::string_view zero = {};             // the word for 0
  void (*check)(const Value&) = nullptr;  // of a text: Error(input) if it means nothing

  const T& in(const Point& point) const { return point.*member; }
  T& in(Point& point) const { return point.*member; }
};

// Error(input) at the value's place if its text is no word for blocks ("all", "first-8", ...).
void check_blocks(const Value& blocks);

// In the order of the members.
inline constexpr std::tuple kFields{
    Field{.key = "model",
          .member = &Point::model,
          .written = Written::always,
          .help = "the decoder: a built-in name (7b) or a model file",
          .unset = Unset::no_axis,
          .logged = Logged::no},
    Field{.key = "seq_len",
          .member = &Point::seq_len,
          .written = Written::always,
          .help = "tokens of a sequence",
          .unset = Unset::completed,
          .range = {1, std::int64_t{1} << 30}},
    Field{.key = "global_batch",
          .member = &Point::global_batch,
          .written = Written::always,
          .help = "sequences of a step, over all devices",
          .unset = Unset::no_axis,
          .range = {.lowest = 1}},
    Field{.key = "microbatch_size",
          .member = &Point::microbatch_size,
          .written = Written::always,
          .help = "sequences that a device computes at once; auto: the most that fit",
          .range = {.lowest = 1},
          .zero = "auto"},
    Field{.key = "precision",
          .member = &Point::precision,
          .written = Written::always,
          .help = "what matrix products are computed in; bf16, fp16, fp8 mean amp_*"},
    Field{.key = "mixed_precision",
          .member = &Point::mixed_precision,
          .written = Written::in_full,
          .help = "what is gathered and reduced in the low precision"},
    Field{.key = "sharding_strategy",
          .member = &Point::sharding_strategy,
          .written = Written::in_full,
          .help = "what is split over the devices, by PyTorch FSDP's names"},
    Field{.key = "hybrid_group",
          .member = &Point::hybrid_group,
          .written = Written::in_full,
          .help = "devices of a shard group under HYBRID_SHARD; 0: those of a node",
          .range = {0, 1 << 20}},
    Field{.key = "activation_checkpointing",
          .member = &Point::activation_checkpointing,
          .written = Written::in_full,
          .help = "what the backward pass computes again instead of keeping it"},
    Field{.key = "checkpointing_blocks",
          .member = &Point::checkpointing_blocks,
          .written = Written::if_set,
          .help = "blocks that activation_checkpointing is for: all, first-N, last-N or every-N",
          .logged = Logged::no,
          .check = check_blocks},
    Field{.key = "activation_cpu_offload",
          .member = &Point::activation_cpu_offload,
          .written = Written::in_full,
          .help = "whether what is kept for the backward pass waits in host memory"},
    Field{.key = "attention",
          .member = &Point::attention,
          .written = Written::in_full,
          .help = "which attention runs; auto: the fastest exact one",
          .logged = Logged::decided},
    Field{.key = "gpus",
          .member = &Point::gpus,
          .written = Written::always,
          .help = "devices in all, on a CPU ranks",
          .unset = Unset::completed,
          .range = {1, 1 << 20}},
    Field{.key = "nodes",
          .member = &Point::nodes,
          .written = Written::in_full,
          .help = "machines that the devices are in",
          .unset = Unset::no_axis,
          .range = {.lowest = 1}},
    Field{.key = "gpu",
          .member = &Point::gpu,
          .written = Written::always,
          .help = "kind of device: a name in the GPU catalogue, or cpu",
          .unset = Unset::completed,
          .logged = Logged::no},
    Field{.key = "cluster",
          .member = &Point::cluster,
          .written = Written::always,
          .help = "cluster that runs it: a built-in name or a cluster file",
          .logged = Logged::no},
    Field{.key = "threads",
          .member = &Point::threads,
          .written = Written::in_full,
          .help = "threads of a rank on a CPU; 0 on a GPU",
          .unset = Unset::completed,
          .range = {1, 1024}},
    Field{.key = "steps",
          .member = &Point::steps,
          .written = Written::in_full,
          .help = "optimizer steps in all; on a GPU at least so many",
          .range = {1, 1'000'000}},
    Field{.key = "warmup",
          .member = &Point::warmup,
          .written = Written::in_full,
          .help = "steps at the beginning that are not measured; on a GPU at least so many",
          .range = {0, 1'000'000}},
    Field{.key = "exact_steps",
          .member = &Point::exact_steps,
          .written = Written::in_full,
          .help = "whether a GPU runs exactly so many steps",
          .logged = Logged::no},
    Field{.key = "deterministic",
          .member = &Point::deterministic,
          .written = Written::in_full,
          .help = "whether a GPU gives the same bits in each run",
          .logged = Logged::decided},
    Field{.key = "fused_gelu",
          .member = &Point::fused_gelu,
          .written = Written::if_set,
          .help = "whether matrix products do a gelu_tanh themselves",
          .logged = Logged::decided},
    Field{.key = "data",
          .member = &Point::data,
          .written = Written::in_full,
          .help = "tokens to train on: synthetic, or the path of a token file"},
    Field{.key = "seed",
          .member = &Point::seed,
          .written = Written::in_full,
          .help = "number that initial values and the order of data follow from"},
    Field{.key = "env",
          .member = &Point::env,
          .written = Written::in_full,
          .help = "environment variables, each an axis: env.NAME",
          .unset = Unset::no_axis,
          .logged = Logged::no},
    Field{.key = "identity",
          .member = &Point::identity,
          .written = Written::in_full,
          .help = "what the cluster file declares as part of the identity",
          .unset = Unset::no_axis,
          .logged = Logged::no},
};

inline constexpr std::size_t kFieldCount = std::tuple_size_v<decltype(kFields)>;

// visit(field) for each, in the order above.
template <class Visit>
constexpr void each_field(Visit visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, kFields);
}

// Place of a member's row, which need not be there: then std::get does not compile.
template <class T>
consteval std::size_t place_of(T Point::* member) {
  std::size_t place = 0;
  std::size_t found = kFieldCount;
  each_field([&]<class U>(const Field<U>& field) {
    if constexpr (std::is_same_v<T, U>) {
      if (field.member == member) found = place;
    }
    ++place;
  });
  return found;
}

// field_of<&Point::seq_len>(): its row.
template <auto member>
constexpr const auto& field_of() {
  return std::get<place_of(member)>(kFields);
}

// A value that stands alone, as opposed to a model or named texts: what an axis or a log can say.
template <class T>
inline constexpr bool is_setting =
    std::is_integral_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;

// visit(field) for each such value.
template <class Visit>
constexpr void each_setting(Visit visit) {
  each_field([&]<class T>(const Field<T>& field) {
    if constexpr (is_setting<T>) visit(field);
  });
}

// visit(field) for each that is an axis by its key. Beside them model, batch and env.NAME are axes
// (lib/sweep/axes.h).
template <class Visit>
constexpr void each_axis_field(Visit visit) {
  each_setting([&](const auto& field) {
    if (field.unset != Unset::no_axis) visit(field);
  });
}

}  // namespace tessera::sweep
