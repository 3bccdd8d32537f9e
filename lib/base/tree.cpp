// SPDX-License-Identifier: Apache-2.0
#include "lib/base/tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/numbers.h"

namespace tessera {

namespace {

std::string_view kind_name(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "nothing";
    case Value::Kind::scalar:
      return value.quoted ? "quoted text" : "a single value";
    case Value::Kind::list:
      return "a list";
    case Value::Kind::map:
      return "a mapping";
  }
  return "?";
}

void require_scalar(const Value& value, std::string_view wanted) {
  if (value.kind != Value::Kind::scalar)
    bad_value(value, fmt::format("{} where {} belongs", kind_name(value), wanted));
}

}  // namespace

void bad_value(const Value& value, std::string_view what, std::string_view fix) {
  throw Error(ExitCode::input, value.where, what, fix);
}

const Value* Value::find(std::string_view key) const {
  const auto found =
      std::ranges::find_if(members, [&](const auto& member) { return member.key == key; });
  return found == members.end() ? nullptr : &found->value;
}

Fields::Fields(const Value& map, std::string_view what) : map_(map), what_(what) {
  if (map.kind != Value::Kind::map)
    bad_value(map, fmt::format("{} where {} (a mapping) belongs", kind_name(map), what));
}

const Value* Fields::nullable(std::string_view key) {
  asked_.emplace_back(key);
  return map_.find(key);
}

const Value* Fields::optional(std::string_view key) {
  const Value* value = nullable(key);
  return value != nullptr && value->is_null() ? nullptr : value;
}

const Value& Fields::required(std::string_view key) {
  const Value* value = optional(key);
  if (value == nullptr) bad_value(map_, fmt::format("{} lacks '{}'", what_, key));
  return *value;
}

void Fields::finish() {
  for (const auto& [key, value] : map_.members) {
    if (std::ranges::find(asked_, key) != asked_.end()) continue;
    std::vector<std::string> free;
    for (const std::string& known : asked_) {
      if (map_.find(known) == nullptr) free.push_back(known);
    }
    throw Error(ExitCode::input, value.key_where.empty() ? value.where : value.key_where,
                fmt::format("unknown key '{}' in {}", key, what_), suggestion(key, free));
  }
}

std::int64_t as_integer(const Value& value, std::int64_t low, std::int64_t high) {
  require_scalar(value, "an integer");
  if (value.quoted)
    bad_value(value, fmt::format("'{}' is quoted text, not an integer", value.text),
              "remove the quotes");
  const auto number = parse_integer(value.text);
  if (!number) {
    bad_value(value, fmt::format("'{}' {}", value.text, integer_fault(value.text)),
              "write a decimal integer or 2^n");
  }
  if (*number < low || *number > high) {
    bad_value(value, fmt::format("{} is out of range", value.text),
              fmt::format("from {} to {}", low, high));
  }
  return *number;
}

double as_number(const Value& value) {
  require_scalar(value, "a number");
  const auto number = value.quoted ? std::nullopt : parse_number(value.text);
  if (!number)
    bad_value(value, fmt::format("'{}' is not a number", value.text), "write it like 67 or 1.2e-4");
  return *number;
}

bool as_bool(const Value& value) {
  require_scalar(value, "true or false");
  if (!value.quoted && value.text == "true") return true;
  if (!value.quoted && value.text == "false") return false;
  bad_value(value, fmt::format("'{}' is not a boolean", value.text), "write true or false");
}

std::string as_text(const Value& value) {
  require_scalar(value, "text");
  return value.text;
}

void require_schema(const Value& value, std::int64_t known) {
  if (const std::int64_t given = as_integer(value); given != known) {
    bad_value(value, fmt::format("format {} is not known", given),
              fmt::format("this version reads {}", known));
  }
}

std::vector<const Value*> as_list(const Value& value) {
  if (value.kind != Value::Kind::list) return {&value};
  if (value.items.empty()) bad_value(value, "the list is empty", "give at least one value");
  std::vector<const Value*> items;
  for (const Value& item : value.items) items.push_back(&item);
  return items;
}

std::vector<std::string> as_texts(const Value& value) {
  std::vector<std::string> texts;
  for (const Value* item : as_list(value)) texts.push_back(as_text(*item));
  return texts;
}

}  // namespace tessera
