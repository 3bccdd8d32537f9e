// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/flag_grid.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/submit/cli/foundry_flags.h"
#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/point/data_path.h"
#include "lib/sweep/sweep_file.h"

namespace tessera::apps {

namespace {

using sweep::Axis;
using sweep::Batch;
using sweep::Block;
using sweep::Grid;
using sweep::Setting;

// Returns the text of a flag as a Value, so that the readers of sweep files take it. "null" is
// null.
Value flag_value(std::string_view text, const std::string& flag) {
  Value value;
  value.kind = text == "null" ? Value::Kind::null : Value::Kind::scalar;
  value.text = text;
  value.where = flag;
  return value;
}

// A token file on the command line is meant from the current folder.
Setting parse_flag(const std::string& key, std::string_view text, const std::string& flag) {
  Setting setting = sweep::parse_setting(key, flag_value(text, flag));
  if (setting.key == "data")
    setting.value = sweep::located_data(std::get<std::string>(setting.value), {});
  return setting;
}

// "KEY=V" at its first '='.
std::pair<std::string, std::string> key_and_value(const std::string& text,
                                                  const std::string& flag) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ExitCode::usage, flag, fmt::format("'{}' has no value", text),
                fmt::format("write {} {}=VALUE", flag, equals == 0 ? "NAME" : text));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// Collects one axis for each flag, in order. Error(usage) if two flags give the same axis.
class FlagBlock {
 public:
  void add(const std::string& key, const std::vector<std::string>& texts, const std::string& flag) {
    if (texts.empty()) return;
    Axis axis;
    for (const std::string& text : texts) axis.choices.push_back({parse_flag(key, text, flag)});
    add(std::move(axis), flag);
  }

  void add(Axis axis, const std::string& flag) {
    if (axis.choices.empty()) return;
    axis.keys = {axis.choices.front().front().key};
    if (has(axis.keys.front())) {
      throw Error(ExitCode::usage, flag,
                  fmt::format("'{}' is already given by another flag", axis.keys.front()),
                  "keep one of them");
    }
    block_.axes.push_back(std::move(axis));
  }

  bool has(const std::string& key) const {
    return std::ranges::any_of(block_.axes,
                               [&](const Axis& axis) { return axis.keys.front() == key; });
  }

  Block take() { return std::move(block_); }

 private:
  Block block_;
};

// Powers of two from the first exponent to the last.
std::vector<std::int64_t> powers(const std::vector<std::string>& exponents, const std::string& flag,
                                 std::int64_t highest) {
  if (exponents.empty()) return {};
  if (exponents.size() != 2) {
    throw Error(
        ExitCode::usage, flag,
        fmt::format("takes two exponents, the first and the last, not {}", exponents.size()),
        fmt::format("{} 11 14 means 2^11, 2^12, 2^13, 2^14", flag));
  }
  const std::int64_t first = require_integer(exponents[0], flag, 0, highest);
  const std::int64_t last = require_integer(exponents[1], flag, 0, highest);
  if (first > last) {
    throw Error(ExitCode::usage, flag,
                fmt::format("the first exponent {} is larger than the last {}", first, last));
  }
  std::vector<std::int64_t> values;
  for (std::int64_t n = first; n <= last; ++n) values.push_back(std::int64_t{1} << n);
  return values;
}

// Returns the sequence lengths of -s and --seq_lens; 2048 if neither is given.
Axis seq_axis(const GridFlags& flags) {
  Axis axis;
  for (const std::int64_t seq_len : powers(flags.seq_exponents, "-s", 30))
    axis.choices.push_back({{"seq_len", seq_len, "-s"}});
  for (const std::string& text : flags.seq_lens)
    axis.choices.push_back({sweep::parse_setting("seq_len", flag_value(text, "--seq_lens"))});
  if (axis.choices.empty()) axis.choices.push_back({{"seq_len", std::int64_t{2048}, "-s"}});
  return axis;
}

// Returns the rules for the global batch: -b and --batch_sizes, otherwise --accum. If none of them
// is given, a known microbatch is the batch of each GPU; otherwise the axis is empty.
Axis batch_axis(const GridFlags& flags) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 40;
  Axis axis;
  const auto add = [&](Batch::Kind kind, std::int64_t count, const char* flag) {
    axis.choices.push_back({{"batch", Batch{kind, count}, flag}});
  };
  for (const std::string& text : flags.batch_sizes) {
    add(Batch::Kind::samples, require_integer(text, "--batch_sizes", 1, kLargest), "--batch_sizes");
  }
  for (const std::int64_t tokens : powers(flags.batch_exponents, "-b", 40))
    add(Batch::Kind::tokens, tokens, "-b");
  if (!axis.choices.empty()) {
    if (!flags.accum.empty()) {
      throw Error(ExitCode::usage, "--accum", "the batch is already given by -b or --batch_sizes",
                  "keep one of them");
    }
    return axis;
  }
  for (const std::string& text : flags.accum)
    add(Batch::Kind::accum, require_integer(text, "--accum", 1, kLargest), "--accum");
  const bool microbatch_is_known =
      !flags.microbatch_sizes.empty() &&
      std::ranges::find(flags.microbatch_sizes, "auto") == flags.microbatch_sizes.end();
  if (axis.choices.empty() && microbatch_is_known) add(Batch::Kind::accum, 1, "--microbatch_size");
  return axis;
}

// llm-foundry says true or false.
std::vector<std::string> checkpointing(const std::vector<std::string>& texts) {
  std::vector<std::string> modes;
  for (const std::string& text : texts) {
    if (text == "true") {
      modes.emplace_back("full");
    } else {
      modes.push_back(text == "false" ? "none" : text);
    }
  }
  return modes;
}

// Throws Error(usage) for a flag that would add an axis to the sweep file.
void refuse_beside_sweep(const GridFlags& flags) {
  const std::pair<const GridFlags::Texts&, const char*> axes[] = {
      {flags.models, "-m"},
      {flags.seq_exponents, "-s"},
      {flags.seq_lens, "--seq_lens"},
      {flags.batch_exponents, "-b"},
      {flags.batch_sizes, "--batch_sizes"},
      {flags.accum, "--accum"},
      {flags.microbatch_sizes, "--microbatch_size"},
      {flags.gpu_types, "--gpu_types"},
      {flags.gpus, "-g"},
      {flags.precisions, "-t"},
      {flags.mixed_precisions, "--mixed_precision"},
      {flags.sharding_strategies, "--sharding_strategy"},
      {flags.checkpointing, "--activation_checkpointing"},
      {flags.axes, "--axis"}};
  for (const auto& [texts, flag] : axes) {
    if (texts.empty()) continue;
    throw Error(ExitCode::usage, flag, "the sweep file says what varies",
                "narrow it with --where \"EXPRESSION\", or change one value with --set KEY=VALUE");
  }
  if (flags.clusters.size() > 1)
    throw Error(ExitCode::usage, "-c", "takes one cluster beside --sweep");
}

// Adds the flags that set one value in all points. Error(usage) if the value is given twice.
void add_forced(const GridFlags& flags, Grid& grid) {
  const auto force = [&](const std::string& key, const std::string& text, const std::string& flag) {
    Setting setting = parse_flag(key, text, flag);
    const auto same = [&](const Setting& other) { return other.key == setting.key; };
    if (std::ranges::any_of(grid.forced, same))
      throw Error(ExitCode::usage, flag, fmt::format("'{}' is given twice", key));
    const bool is_axis =
        flags.sweep.empty() && std::ranges::any_of(grid.matrix->axes, [&](const Axis& axis) {
          return axis.keys.front() == setting.key;
        });
    if (is_axis) {
      throw Error(ExitCode::usage, flag, fmt::format("'{}' is already given by another flag", key),
                  "keep one of them");
    }
    grid.forced.push_back(std::move(setting));
  };
  if (!flags.sweep.empty() && !flags.clusters.empty())
    force("cluster", flags.clusters.front(), "-c");
  if (!flags.steps.empty()) force("steps", flags.steps, "--steps");
  if (!flags.warmup.empty()) force("warmup", flags.warmup, "--warmup");
  if (flags.exact_steps) force("exact_steps", "true", "--exact-steps");
  for (const std::string& text : flags.sets) {
    const auto [key, value] = key_and_value(text, "--set");
    force(key, value, "--set");
  }
  const char* offload = "--activation_cpu_offload";
  if (!flags.cpu_offload.empty())
    force("activation_cpu_offload", foundry_bool(flags.cpu_offload, offload) ? "true" : "false",
          offload);
}

// Returns the product of the flags. The model is outermost, the batch innermost.
Block block_of(const GridFlags& flags) {
  FlagBlock block;
  if (flags.models.empty())
    throw Error(ExitCode::usage, "-m", "no model is given", "for example -m 7b, or --sweep FILE");
  block.add("model", flags.models, "-m");
  block.add(seq_axis(flags), "-s");
  block.add("cluster", flags.clusters, "-c");
  block.add("gpu", flags.gpu_types, "--gpu_types");
  block.add("gpus", flags.gpus, "-g");
  block.add("precision", flags.precisions, "-t");
  block.add("mixed_precision", flags.mixed_precisions, "--mixed_precision");
  block.add("sharding_strategy", flags.sharding_strategies, "--sharding_strategy");
  block.add("activation_checkpointing", checkpointing(flags.checkpointing),
            "--activation_checkpointing");
  block.add("microbatch_size", flags.microbatch_sizes, "--microbatch_size");
  // "--axis seed=1,2,3" is an axis of three values.
  for (const std::string& text : flags.axes) {
    const auto [key, list] = key_and_value(text, "--axis");
    std::vector<std::string> values;
    for (std::size_t start = 0; start <= list.size();) {
      const std::size_t comma = std::min(list.find(',', start), list.size());
      values.push_back(list.substr(start, comma - start));
      start = comma + 1;
    }
    block.add(key, values, "--axis");
  }
  block.add(batch_axis(flags), "-b");
  return block.take();
}

}  // namespace

Grid grid_of_flags(const GridFlags& flags) {
  Grid grid;
  if (!flags.sweep.empty()) {
    refuse_beside_sweep(flags);
    grid = sweep::read_sweep(sweep::find_sweep(flags.sweep, "--sweep"));
  } else {
    grid.matrix = block_of(flags);
  }
  add_forced(flags, grid);
  if (!flags.where.empty()) grid.only = sweep::Expression::parse(flags.where, "--where");
  return grid;
}

}  // namespace tessera::apps
