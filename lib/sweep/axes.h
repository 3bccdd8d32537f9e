// SPDX-License-Identifier: Apache-2.0
// What can vary in a sweep, and how its values are written, for flags, sweep files, overrides and
// constraints alike (docs/formats.md, "Sweep"): the fields of a point that are axes
// (lib/point/fields.h), and model, batch, global_batch and env.NAME.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lib/base/tree.h"

namespace tessera::sweep {

// A rule for the global batch, resolved when gpus, seq_len and microbatch_size are known.
struct Batch {
  enum class Kind : std::uint8_t {
    samples,  // the global batch itself
    per_gpu,  // x gpus
    tokens,   // / seq_len
    accum,    // x gpus x microbatch_size
  };
  Kind kind = Kind::samples;
  std::int64_t count = 0;
  bool operator==(const Batch&) const = default;
};

// Begins the name of an axis that is an environment variable: "env.NCCL_PROTO".
inline constexpr std::string_view kEnvironmentPrefix = "env.";

// Value of an axis. Nothing: microbatch_size auto, an environment variable that is not set.
using Scalar = std::variant<std::monostate, std::int64_t, bool, std::string, Batch>;

struct Setting {
  std::string key;  // an axis; "batch" also where global_batch was written
  Scalar value;
  std::string where;  // file:line:column or flag
};
using Assignment = std::vector<Setting>;

enum class AxisType : std::uint8_t { number, text, boolean, batch };

// Nothing if there is no such axis. "env.NAME" is an axis for every NAME of letters, digits and _.
std::optional<AxisType> axis_type(std::string_view key);
std::vector<std::string> axis_names();  // without env.NAME
// Each axis with what it is and takes, for help.
std::vector<std::pair<std::string, std::string>> axes_help();

// Error(input) at `where` with the nearest name if `key` is no axis.
void require_axis(std::string_view key, const std::string& where);

// Checks and reads one value: 2^n, the short names bf16, fp16, fp8, `auto`. Error(input) at the
// value's place.
Setting parse_setting(std::string_view key, const Value& value);

// Settings of a value that may be a list: one each. `batch: {samples: [8, 16]}` is a list too.
std::vector<Setting> parse_choices(std::string_view key, const Value& value);

// As it would be written: "auto" or "null" for nothing, "accum 2" for a batch rule.
std::string scalar_text(std::string_view key, const Scalar& value);

}  // namespace tessera::sweep

namespace tessera {
template <>
struct Names<sweep::Batch::Kind> {
  static constexpr std::pair<sweep::Batch::Kind, std::string_view> table[] = {
      {sweep::Batch::Kind::samples, "samples"},
      {sweep::Batch::Kind::per_gpu, "per_gpu"},
      {sweep::Batch::Kind::tokens, "tokens"},
      {sweep::Batch::Kind::accum, "accum"}};
};
}  // namespace tessera
