// SPDX-License-Identifier: Apache-2.0
#include "lib/point/point.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "lib/base/numbers.h"
#include "lib/point/json_writer.h"

namespace tessera::sweep {

namespace {

// Keys in byte order: that is what makes the form canonical. `all`: also the members that equal
// their default, but for norm_eps and rope_theta, which came later: the specification of a model
// that has neither is read by trainers that know neither.
void write_model(JsonWriter& json, const model::Shape& shape, double lr, bool all) {
  const model::Shape defaults;
  json.open("model");
  if (all || shape.activation != defaults.activation)
    json.text("activation", to_text(shape.activation));
  if (all || shape.biases != defaults.biases) {
    json.open("biases");
    json.boolean("mlp", shape.biases.mlp);
    json.boolean("norm", shape.biases.norm);
    json.boolean("out", shape.biases.out);
    json.boolean("qkv", shape.biases.qkv);
    json.close();
  }
  json.integer("d_model", shape.d_model);
  json.integer("ffn", shape.ffn);
  if (all || shape.head_dim * shape.n_heads != shape.d_model)
    json.integer("head_dim", shape.head_dim);
  json.number("lr", lr);
  json.integer("n_heads", shape.n_heads);
  if (all || shape.n_kv_heads != shape.n_heads) json.integer("n_kv_heads", shape.n_kv_heads);
  json.integer("n_layers", shape.n_layers);
  if (all || shape.norm != defaults.norm) json.text("norm", to_text(shape.norm));
  if (shape.norm_eps != defaults.norm_eps) json.number("norm_eps", shape.norm_eps);
  if (all || shape.positions != defaults.positions)
    json.text("positions", to_text(shape.positions));
  if (shape.rope_theta != defaults.rope_theta) json.number("rope_theta", shape.rope_theta);
  if (all || shape.tied != defaults.tied) json.boolean("tied", shape.tied);
  json.integer("vocab", shape.vocab);
  json.close();
}

// Places in the table by key in byte order: that is what makes the form canonical.
constexpr auto kByKey = [] {
  std::array<std::string_view, kFieldCount> keys;
  std::array<std::size_t, kFieldCount> order{};
  std::size_t count = 0;
  each_field([&](const auto& field) { keys[count++] = field.key; });
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](std::size_t place) { return keys[place]; });
  return order;
}();

template <class Visit>
void each_field_by_key(Visit visit) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (visit(std::get<kByKey[I]>(kFields)), ...);
  }(std::make_index_sequence<kFieldCount>());
}

template <class T>
void write_value(JsonWriter& json, const Field<T>& field, const T& value) {
  if constexpr (std::is_enum_v<T>) {
    json.text(field.key, to_text(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    json.boolean(field.key, value);
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    if (value == 0 && !field.zero.empty()) {
      json.text(field.key, field.zero);
    } else {
      json.integer(field.key, value);
    }
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    json.unsigned_integer(field.key, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    json.text(field.key, value);
  } else {
    json.texts(field.key, value);
  }
}

std::string write_point(const Point& point, bool all) {
  static const Point defaults;
  JsonWriter json;
  json.open();
  each_field_by_key([&]<class T>(const Field<T>& field) {
    if constexpr (std::is_same_v<T, model::Shape>) {
      write_model(json, point.model, point.lr, all);
    } else {
      const bool is_said = field.written == Written::always ||
                           (all && field.written == Written::in_full) ||
                           field.in(point) != field.in(defaults);
      if (is_said) write_value(json, field, field.in(point));
    }
  });
  json.close();
  return json.take();
}

model::Shape parse_shape(const Value& value, double& lr) {
  Fields fields(value, "a point's model");
  const auto count = [](const Value& number) { return as_integer(number, 1, kLargestInteger); };
  model::Shape shape;
  shape.d_model = count(fields.required("d_model"));
  shape.n_layers = count(fields.required("n_layers"));
  shape.n_heads = count(fields.required("n_heads"));
  shape.ffn = count(fields.required("ffn"));
  shape.vocab = count(fields.required("vocab"));
  const Value* kv_heads = fields.optional("n_kv_heads");
  shape.n_kv_heads = kv_heads != nullptr ? count(*kv_heads) : shape.n_heads;
  const Value* head_dim = fields.optional("head_dim");
  if (head_dim == nullptr && shape.d_model % shape.n_heads != 0) {
    bad_value(
        value,
        fmt::format("d_model {} is not a multiple of n_heads {}", shape.d_model, shape.n_heads),
        "give head_dim");
  }
  shape.head_dim = head_dim != nullptr ? count(*head_dim) : shape.d_model / shape.n_heads;
  lr = as_number(fields.required("lr"));
  if (const Value* norm = fields.optional("norm")) shape.norm = as_name<model::Norm>(*norm);
  if (const Value* positions = fields.optional("positions"))
    shape.positions = as_name<model::Positions>(*positions);
  if (const Value* act = fields.optional("activation"))
    shape.activation = as_name<model::Activation>(*act);
  if (const Value* tied = fields.optional("tied")) shape.tied = as_bool(*tied);
  if (const Value* eps = fields.optional("norm_eps")) shape.norm_eps = as_number(*eps);
  if (const Value* theta = fields.optional("rope_theta")) shape.rope_theta = as_number(*theta);
  if (const Value* biases = fields.optional("biases")) {
    Fields members(*biases, "biases");
    shape.biases.qkv = as_bool(members.required("qkv"));
    shape.biases.out = as_bool(members.required("out"));
    shape.biases.mlp = as_bool(members.required("mlp"));
    shape.biases.norm = as_bool(members.required("norm"));
    members.finish();
  }
  fields.finish();
  if (const auto fault = model::contradiction(shape)) bad_value(value, *fault);
  return shape;
}

template <class T>
void read_value(const Field<T>& field, const Value& value, T& target) {
  if constexpr (std::is_enum_v<T>) {
    target = as_name<T>(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    target = as_bool(value);
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    if (!field.zero.empty() && value.text == field.zero) {
      target = 0;
      return;
    }
    // A field that may be left out may say its default, 0 threads of a GPU.
    const std::int64_t lowest = field.written == Written::always
                                    ? field.range.lowest
                                    : std::min(field.range.lowest, target);
    target = as_integer(value, lowest, kLargestInteger);
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    target = static_cast<std::uint64_t>(as_integer(value, 0));
  } else if constexpr (std::is_same_v<T, std::string>) {
    target = as_text(value);
    if (field.check != nullptr) field.check(value);
  } else {
    const Fields checked(value, field.key);
    for (const auto& [key, member] : value.members) target[key] = as_text(member);
  }
}

}  // namespace

std::string point_json(const Point& point) {
  return write_point(point, true);
}

std::string canonical_json(const Point& point) {
  return write_point(point, false);
}

Point parse_point(const Value& value) {
  Fields fields(value, "a point");
  Point point;
  each_field([&]<class T>(const Field<T>& field) {
    const Value* member =
        field.written == Written::always ? &fields.required(field.key) : fields.optional(field.key);
    if (member == nullptr) return;
    if constexpr (std::is_same_v<T, model::Shape>) {
      point.model = parse_shape(*member, point.lr);
    } else {
      read_value(field, *member, field.in(point));
    }
  });
  fields.finish();
  return point;
}

}  // namespace tessera::sweep
