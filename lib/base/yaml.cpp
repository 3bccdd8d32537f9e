// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

#include "lib/base/file.h"
#include "lib/base/tree.h"

namespace tessera {

namespace {

// yaml-cpp counts from 0, editors from 1.
std::string place(const std::string& name, const YAML::Mark& mark) {
  return fmt::format("{}:{}:{}", name, mark.line + 1, mark.column + 1);
}

Value convert(const YAML::Node& node, const std::string& name) {
  Value value;
  value.where = place(name, node.Mark());
  // "?" marks a plain scalar, "!" a quoted one; an empty tag comes with empty nodes.
  const std::string& tag = node.Tag();
  if (!tag.empty() && tag != "?" && tag != "!")
    bad_value(value, fmt::format("tags like {} are not used here", tag));
  switch (node.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null:
      value.kind = Value::Kind::null;
      break;
    case YAML::NodeType::Scalar:
      value.kind = Value::Kind::scalar;
      value.text = node.Scalar();
      value.quoted = tag == "!";
      break;
    case YAML::NodeType::Sequence:
      value.kind = Value::Kind::list;
      for (const YAML::Node& item : node) value.items.push_back(convert(item, name));
      break;
    case YAML::NodeType::Map:
      value.kind = Value::Kind::map;
      for (const auto& member : node) {
        const Value key = convert(member.first, name);
        if (key.kind != Value::Kind::scalar) bad_value(key, "a key must be a single word");
        if (key.text == "<<") bad_value(key, "merge keys are not used here", "write the keys out");
        if (value.find(key.text) != nullptr) {
          bad_value(key, fmt::format("key '{}' stands twice in this mapping", key.text),
                    "keep one of them");
        }
        value.members.push_back({.key = key.text, .value = convert(member.second, name)});
        value.members.back().value.key_where = key.where;
        // An absent value has no place of its own.
        if (value.members.back().value.is_null()) value.members.back().value.where = key.where;
      }
      break;
  }
  return value;
}

}  // namespace

Value parse_yaml(std::string_view text, const std::string& name) {
  if (text.find('\0') != std::string_view::npos)
    throw Error(ExitCode::input, name, "is binary, not YAML");
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(std::string(text));
  } catch (const YAML::Exception& fault) {
    throw Error(ExitCode::input, place(name, fault.mark),
                fmt::format("not valid YAML: {}", fault.msg));
  }
  if (documents.empty()) throw Error(ExitCode::input, name, "is empty");
  if (documents.size() > 1) throw Error(ExitCode::input, name, "holds more than one YAML document");
  return convert(documents.front(), name);
}

Value read_yaml(const std::string& path) {
  return parse_yaml(read_file(path), path);
}

}  // namespace tessera
