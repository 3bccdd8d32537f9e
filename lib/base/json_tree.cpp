// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/base/numbers.h"
#include "lib/base/tree.h"

namespace tessera {

namespace {

using Json = nlohmann::json;

// Builds the tree from parse events, which show duplicate keys that a parsed object no longer has.
class Builder : public Json::json_sax_t {
 public:
  explicit Builder(std::string name) : name_(std::move(name)) {}

  Value take() { return std::move(root_); }

  bool null() override { return scalar({}, false, Value::Kind::null); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false", false); }
  bool number_integer(number_integer_t value) override {
    return scalar(fmt::to_string(value), false);
  }
  bool number_unsigned(number_unsigned_t value) override {
    return scalar(fmt::to_string(value), false);
  }
  bool number_float(number_float_t value, const string_t&) override {
    return scalar(shortest(value), false);
  }
  bool string(string_t& value) override { return scalar(value, true); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Value::Kind::map); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Value::Kind::list); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    Value& map = *open_.back();
    if (map.find(key) != nullptr) {
      throw Error(ExitCode::input, path(), fmt::format("key '{}' stands twice", key),
                  "keep one of them");
    }
    key_ = key;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    throw Error(ExitCode::input, name_, fmt::format("not valid JSON at byte {}", position));
  }

 private:
  std::string path() const { return open_.empty() ? name_ : open_.back()->where; }

  Value& place() {
    if (open_.empty()) {
      root_.where = name_;
      return root_;
    }
    Value& parent = *open_.back();
    const bool top = open_.size() == 1;
    if (parent.kind == Value::Kind::list) {
      const std::size_t index = parent.items.size();
      parent.items.emplace_back().where = fmt::format("{}[{}]", parent.where, index);
      return parent.items.back();
    }
    Value& value = parent.members.emplace_back(Member{.key = key_, .value = {}}).value;
    value.where = fmt::format("{}{}{}", parent.where, top ? ":" : ".", key_);
    return value;
  }

  bool scalar(std::string text, bool quoted, Value::Kind kind = Value::Kind::scalar) {
    Value& value = place();
    value.kind = kind;
    value.text = std::move(text);
    value.quoted = quoted;
    return true;
  }

  // A parent's vector grows only while its child is closed, so the pointers in open_ stay good.
  bool open(Value::Kind kind) {
    if (open_.size() >= 64) throw Error(ExitCode::input, path(), "is nested too deeply");
    Value& value = place();
    value.kind = kind;
    open_.push_back(&value);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string name_;
  Value root_;
  std::vector<Value*> open_;
  std::string key_;
};

}  // namespace

Value parse_json(std::string_view text, const std::string& name) {
  Builder builder(name);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace tessera
