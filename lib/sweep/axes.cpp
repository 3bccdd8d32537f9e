// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "lib/point/data_path.h"
#include "lib/point/fields.h"
#include "lib/point/point_values.h"

namespace tessera::sweep {

namespace {

constexpr std::size_t kLongestText = 256;

Scalar text(const Value& value) {
  std::string read = as_text(value);
  if (read.empty()) bad_value(value, "the text is empty");
  if (read.size() > kLongestText)
    bad_value(value, fmt::format("the text is longer than {} characters", kLongestText));
  return read;
}

void check_data(const Value& value) {
  if (value.text == "synthetic" || names_file(value.text)) return;
  bad_value(value, fmt::format("data '{}' is not known", value.text),
            fmt::format("synthetic, or a token file; write ./{} for a file here", value.text));
}

template <class T>
Scalar read(const Field<T>& field, const Value& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return as_bool(value);
  } else if constexpr (std::is_integral_v<T>) {
    if (!field.zero.empty() && value.kind == Value::Kind::scalar && value.text == field.zero)
      return std::monostate{};
    return as_integer(value, field.range.lowest, field.range.highest);
  } else if constexpr (std::is_enum_v<T>) {
    if constexpr (std::is_same_v<T, Precision>) {
      // llm-foundry and its published tables write bf16 for amp_bf16.
      const std::string written = as_text(value);
      if (written == "bf16" || written == "fp16" || written == "fp8") return "amp_" + written;
    }
    return std::string(to_text(as_name<T>(value)));
  } else {
    if (field.check != nullptr) field.check(value);
    Scalar read = text(value);
    if (field.member == &Point::data) check_data(value);
    return read;
  }
}

Scalar batch(const Value& value) {
  Fields fields(value, "a batch");
  std::vector<Batch> found;
  for (const auto& [kind, kind_name] : Names<Batch::Kind>::table) {
    if (const Value* count = fields.optional(kind_name))
      found.push_back({kind, as_integer(*count, 1, kLargestInteger)});
  }
  fields.finish();
  if (found.size() != 1)
    bad_value(value, "a batch is given in exactly one way", "samples, per_gpu, tokens or accum");
  return found.front();
}

Scalar global_batch(const Value& value) {
  return Batch{Batch::Kind::samples, as_integer(value, 1, kLargestInteger)};
}

struct AxisRow {
  std::string_view name;
  AxisType type;
  std::string help;  // "tokens of a sequence (1 to 1073741824)"
  std::function<Scalar(const Value&)> read;
};

template <class T>
constexpr AxisType type_of(const Field<T>&) {
  if constexpr (std::is_same_v<T, bool>) return AxisType::boolean;
  return std::is_integral_v<T> ? AxisType::number : AxisType::text;
}

const std::vector<AxisRow>& axes() {
  static const std::vector<AxisRow> rows = [] {
    std::vector<AxisRow> all{
        {"model", AxisType::text, std::string(field_of<&Point::model>().help), text},
        {"batch", AxisType::batch, "the global batch by rule: samples, per_gpu, tokens or accum",
         batch},
        {"global_batch", AxisType::number, std::string(field_of<&Point::global_batch>().help),
         global_batch}};
    each_axis_field([&]<class T>(const Field<T>& field) {
      std::string help(field.help);
      if constexpr (!std::is_same_v<T, std::string>)
        help += fmt::format(" ({})", choices_text(field));
      all.push_back({field.key, type_of(field), std::move(help),
                     [&field](const Value& value) { return read(field, value); }});
    });
    return all;
  }();
  return rows;
}

bool is_environment(std::string_view key) {
  if (!key.starts_with(kEnvironmentPrefix) || key.size() == kEnvironmentPrefix.size()) return false;
  const std::string_view variable = key.substr(kEnvironmentPrefix.size());
  if (variable.front() >= '0' && variable.front() <= '9') return false;
  return std::ranges::all_of(variable, [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

const AxisRow* find_axis(std::string_view key) {
  const auto found = std::ranges::find(axes(), key, &AxisRow::name);
  return found == axes().end() ? nullptr : &*found;
}

}  // namespace

std::optional<AxisType> axis_type(std::string_view key) {
  if (is_environment(key)) return AxisType::text;
  const AxisRow* axis = find_axis(key);
  if (axis == nullptr) return std::nullopt;
  return axis->type;
}

std::vector<std::string> axis_names() {
  std::vector<std::string> names;
  for (const AxisRow& axis : axes()) names.emplace_back(axis.name);
  return names;
}

std::vector<std::pair<std::string, std::string>> axes_help() {
  std::vector<std::pair<std::string, std::string>> help;
  for (const AxisRow& axis : axes()) help.emplace_back(axis.name, axis.help);
  help.emplace_back("env.NAME", "environment variable of the run; null: not set");
  return help;
}

void require_axis(std::string_view key, const std::string& where) {
  if (axis_type(key)) return;
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
      std::string_view word = "null";
      each_axis_field([&](const auto& field) {
        if (field.key == key) word = field.zero;
      });
      return std::string(word);
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
