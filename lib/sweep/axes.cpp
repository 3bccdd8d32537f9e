#include "lib/sweep/axes.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/model/settings.h"
#include "lib/point/data_path.h"
#include "lib/point/point.h"

namespace tessera::sweep {

namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 40;
constexpr std::size_t kLongestText = 256;

struct AxisRow {
  std::string_view name;
  AxisType type;
  Scalar (*read)(const Value&);
};

template <std::int64_t low, std::int64_t high = kLargest>
Scalar integer(const Value& value) {
  return as_integer(value, low, high);
}

template <class E>
Scalar name(const Value& value) {
  return std::string(to_text(as_name<E>(value)));
}

Scalar boolean(const Value& value) {
  return as_bool(value);
}

Scalar text(const Value& value) {
  std::string read = as_text(value);
  if (read.empty()) bad_value(value, "the text is empty");
  if (read.size() > kLongestText)
    bad_value(value, fmt::format("the text is longer than {} characters", kLongestText));
  return read;
}

// llm-foundry and its published tables write bf16 for amp_bf16.
Scalar precision(const Value& value) {
  const std::string written = as_text(value);
  if (written == "bf16" || written == "fp16" || written == "fp8") return "amp_" + written;
  return name<Precision>(value);
}

Scalar microbatch(const Value& value) {
  if (value.kind == Value::Kind::scalar && value.text == "auto") return std::monostate{};
  return integer<1>(value);
}

Scalar data(const Value& value) {
  Scalar read = text(value);
  const auto& name = std::get<std::string>(read);
  if (name != "synthetic" && !names_file(name)) {
    bad_value(value, fmt::format("data '{}' is not known", name),
              fmt::format("synthetic, or a token file; write ./{} for a file here", name));
  }
  return read;
}

Scalar batch(const Value& value) {
  Fields fields(value, "a batch");
  std::vector<Batch> found;
  for (const auto& [kind, kind_name] : Names<Batch::Kind>::table) {
    if (const Value* count = fields.optional(kind_name))
      found.push_back({kind, as_integer(*count, 1, kLargest)});
  }
  fields.finish();
  if (found.size() != 1)
    bad_value(value, "a batch is given in exactly one way", "samples, per_gpu, tokens or accum");
  return found.front();
}

Scalar global_batch(const Value& value) {
  return Batch{Batch::Kind::samples, as_integer(value, 1, kLargest)};
}

Scalar blocks(const Value& value) {
  check_blocks(value);
  return value.text;
}

constexpr std::int64_t kManySteps = 1000000;

constexpr AxisRow kAxes[] = {
    {"model", AxisType::text, text},
    {"seq_len", AxisType::number, integer<1, std::int64_t{1} << 30>},
    {"batch", AxisType::batch, batch},
    {"global_batch", AxisType::number, global_batch},
    {"microbatch_size", AxisType::number, microbatch},
    {"precision", AxisType::text, precision},
    {"mixed_precision", AxisType::text, name<MixedPrecision>},
    {"sharding_strategy", AxisType::text, name<Sharding>},
    {"hybrid_group", AxisType::number, integer<0, 1 << 20>},
    {"activation_checkpointing", AxisType::text, name<Checkpointing>},
    {"checkpointing_blocks", AxisType::text, blocks},
    {"activation_cpu_offload", AxisType::boolean, boolean},
    {"attention", AxisType::text, name<Attention>},
    {"gpus", AxisType::number, integer<1, 1 << 20>},
    {"gpu", AxisType::text, text},
    {"cluster", AxisType::text, text},
    {"threads", AxisType::number, integer<1, 1024>},
    {"steps", AxisType::number, integer<1, kManySteps>},
    {"warmup", AxisType::number, integer<0, kManySteps>},
    {"exact_steps", AxisType::boolean, boolean},
    {"deterministic", AxisType::boolean, boolean},
    {"fused_gelu", AxisType::boolean, boolean},
    {"data", AxisType::text, data},
    {"seed", AxisType::number, integer<0>},
};

bool is_environment(std::string_view key) {
  if (!key.starts_with(kEnvironmentPrefix) || key.size() == kEnvironmentPrefix.size()) return false;
  const std::string_view variable = key.substr(kEnvironmentPrefix.size());
  if (variable.front() >= '0' && variable.front() <= '9') return false;
  return std::ranges::all_of(variable, [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

const AxisRow* find_axis(std::string_view key) {
  const auto* found = std::ranges::find(kAxes, key, &AxisRow::name);
  return found == std::end(kAxes) ? nullptr : found;
}

}  // namespace

const AxisType* axis_type(std::string_view key) {
  static constexpr AxisType kText = AxisType::text;
  if (is_environment(key)) return &kText;
  const AxisRow* axis = find_axis(key);
  return axis == nullptr ? nullptr : &axis->type;
}

std::vector<std::string> axis_names() {
  std::vector<std::string> names;
  for (const AxisRow& axis : kAxes) names.emplace_back(axis.name);
  return names;
}

void require_axis(std::string_view key, const std::string& where) {
  if (axis_type(key) != nullptr) return;
  throw Error(ExitCode::input, where, fmt::format("'{}' is no axis", key),
              suggestion(key, axis_names()));
}

Setting parse_setting(std::string_view key, const Value& value) {
  Setting setting;
  setting.key = key == "global_batch" ? "batch" : key;
  setting.where = value.where;
  if (is_environment(key)) {
    if (!value.is_null()) setting.value = text(value);
    return setting;
  }
  const AxisRow* axis = find_axis(key);
  if (axis == nullptr) require_axis(key, value.key_where.empty() ? value.where : value.key_where);
  if (value.is_null()) bad_value(value, fmt::format("'{}' has no value", key));
  setting.value = axis->read(value);
  return setting;
}

std::vector<Setting> parse_choices(std::string_view key, const Value& value) {
  std::vector<Setting> choices;
  if (key == "batch" && value.kind == Value::Kind::map && value.members.size() == 1 &&
      value.members.front().value.kind == Value::Kind::list) {
    for (const Value* count : as_list(value.members.front().value)) {
      Value one = value;
      one.where = count->where;
      one.members.front().value = *count;
      choices.push_back(parse_setting(key, one));
    }
    return choices;
  }
  require_axis(key, value.key_where.empty() ? value.where : value.key_where);
  for (const Value* item : as_list(value)) choices.push_back(parse_setting(key, *item));
  return choices;
}

std::string scalar_text(std::string_view key, const Scalar& value) {
  struct Writer {
    std::string_view key;
    std::string operator()(std::monostate) const {
      return key == "microbatch_size" ? "auto" : "null";
    }
    std::string operator()(std::int64_t number) const { return fmt::to_string(number); }
    std::string operator()(bool truth) const { return truth ? "true" : "false"; }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const Batch& batch) const {
      return fmt::format("{} {}", to_text(batch.kind), batch.count);
    }
  };
  return std::visit(Writer{key}, value);
}

}  // namespace tessera::sweep
