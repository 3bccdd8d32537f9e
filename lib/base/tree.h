// SPDX-License-Identifier: Apache-2.0
// The one checked walk over what people and programs write: YAML and JSON both become a Value tree
// that knows where each part stands, and are read through Fields, which refuses unknown keys. Needs
// neither yaml-cpp nor a JSON library.
//
// Every fault is Error(ExitCode::input) whose `where` is file:line:column (YAML) or
// file:path.to.key (JSON).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/names.h"

namespace tessera {

struct Member;

struct Value {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;     // of a scalar, as written
  bool quoted = false;  // a scalar that can only be text
  std::vector<Value> items;
  std::vector<Member> members;  // in file order; keys are unique
  std::string where;
  std::string key_where;  // of a member in YAML: where its key stands

  bool is_null() const { return kind == Kind::null; }
  const Value* find(std::string_view key) const;  // member of a map, or nullptr
};

struct Member {
  std::string key;
  Value value;
};

// Reads the members of a map by name. `finish` refuses the keys that nobody asked for and names the
// nearest that somebody did, so ask for every known key first. Holds a reference: the Value must
// outlive it.
class Fields {
 public:
  Fields(const Value& map, std::string_view what);  // what: "a sweep", "a model", for messages

  const Value* optional(std::string_view key);  // nullptr if absent or null
  const Value* nullable(
      std::string_view key);  // nullptr if absent; a null Value if written as null
  const Value& required(std::string_view key);
  void finish();

 private:
  const Value& map_;
  std::string what_;
  std::vector<std::string> asked_;
};

[[noreturn]] void bad_value(const Value& value, std::string_view what, std::string_view fix = {});

std::int64_t as_integer(const Value& value,
                        std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                        std::int64_t high = std::numeric_limits<std::int64_t>::max());
double as_number(const Value& value);
bool as_bool(const Value& value);         // true or false, nothing else
std::string as_text(const Value& value);  // any scalar
// Error unless the number of a file's format is the one that this version reads.
void require_schema(const Value& value, std::int64_t known);
// A list's items; a scalar is a list of one. Empty lists are refused.
std::vector<const Value*> as_list(const Value& value);
std::vector<std::string> as_texts(const Value& value);

template <class E>
E as_name(const Value& value) {
  const std::string text = as_text(value);
  if (const auto found = from_text<E>(text)) return *found;
  bad_value(value, "unknown value '" + text + "'", suggestion(text, all_names<E>()));
}

// Reads YAML (lib/base/yaml.cpp, target tessera_yaml). One document; duplicate keys, anchors, tags
// and merge keys are refused. `name` stands in messages.
Value parse_yaml(std::string_view text, const std::string& name);
Value read_yaml(const std::string& path);

// Reads one JSON value (lib/base/json_tree.cpp, target tessera_base). Duplicate keys are refused.
Value parse_json(std::string_view text, const std::string& name);

}  // namespace tessera
