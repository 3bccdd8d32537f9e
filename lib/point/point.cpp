#include "lib/point/point.h"

#include <fmt/format.h>

#include "lib/base/numbers.h"
#include "lib/point/json_writer.h"
#include "lib/schedule/recompute.h"

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

std::string write_point(const Point& point, bool all) {
  const Point defaults;
  JsonWriter json;
  json.open();
  if (all || point.activation_checkpointing != defaults.activation_checkpointing) {
    json.text("activation_checkpointing", to_text(point.activation_checkpointing));
  }
  if (all || point.activation_cpu_offload)
    json.boolean("activation_cpu_offload", point.activation_cpu_offload);
  if (all || point.attention != defaults.attention)
    json.text("attention", to_text(point.attention));
  // Left out where it says nothing: records have little room.
  if (point.checkpointing_blocks != defaults.checkpointing_blocks)
    json.text("checkpointing_blocks", point.checkpointing_blocks);
  json.text("cluster", point.cluster);
  if (all || point.data != defaults.data) json.text("data", point.data);
  if (all || point.deterministic) json.boolean("deterministic", point.deterministic);
  if (all || !point.env.empty()) json.texts("env", point.env);
  if (all || point.exact_steps) json.boolean("exact_steps", point.exact_steps);
  if (point.fused_gelu) json.boolean("fused_gelu", true);  // left out likewise
  json.integer("global_batch", point.global_batch);
  json.text("gpu", point.gpu);
  json.integer("gpus", point.gpus);
  if (all || point.hybrid_group != defaults.hybrid_group)
    json.integer("hybrid_group", point.hybrid_group);
  if (all || !point.identity.empty()) json.texts("identity", point.identity);
  if (point.microbatch_size == kAutoMicrobatch) {
    json.text("microbatch_size", "auto");
  } else {
    json.integer("microbatch_size", point.microbatch_size);
  }
  if (all || point.mixed_precision != defaults.mixed_precision) {
    json.text("mixed_precision", to_text(point.mixed_precision));
  }
  write_model(json, point.model, point.lr, all);
  if (all || point.nodes != defaults.nodes) json.integer("nodes", point.nodes);
  json.text("precision", to_text(point.precision));
  if (all || point.seed != defaults.seed) json.unsigned_integer("seed", point.seed);
  json.integer("seq_len", point.seq_len);
  if (all || point.sharding_strategy != defaults.sharding_strategy) {
    json.text("sharding_strategy", to_text(point.sharding_strategy));
  }
  if (all || point.steps != defaults.steps) json.integer("steps", point.steps);
  if (all || point.threads != defaults.threads) json.integer("threads", point.threads);
  if (all || point.warmup != defaults.warmup) json.integer("warmup", point.warmup);
  json.close();
  return json.take();
}

constexpr std::int64_t kLargest = std::int64_t{1} << 40;

model::Shape parse_shape(const Value& value, double& lr) {
  Fields fields(value, "a point's model");
  const auto count = [](const Value& number) { return as_integer(number, 1, kLargest); };
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

std::map<std::string, std::string> parse_texts(const Value& value, std::string_view what) {
  const Fields checked(value, what);
  std::map<std::string, std::string> texts;
  for (const auto& [key, member] : value.members) texts[key] = as_text(member);
  return texts;
}

}  // namespace

std::string point_json(const Point& point) {
  return write_point(point, true);
}

std::string canonical_json(const Point& point) {
  return write_point(point, false);
}

void check_blocks(const Value& blocks) try {
  memory::recompute_mask(Checkpointing::full, 1, blocks.text);
} catch (const Error&) {
  bad_value(blocks, fmt::format("'{}' names no blocks", blocks.text),
            "all, first-N, last-N or every-N");
}

Point parse_point(const Value& value) {
  Fields fields(value, "a point");
  const auto count = [](const Value& number) { return as_integer(number, 1, kLargest); };
  const auto integer = [&](std::string_view key, std::int64_t& target, std::int64_t low) {
    if (const Value* member = fields.optional(key)) target = as_integer(*member, low, kLargest);
  };
  const auto boolean = [&](std::string_view key, bool& target) {
    if (const Value* member = fields.optional(key)) target = as_bool(*member);
  };
  Point point;
  point.model = parse_shape(fields.required("model"), point.lr);
  point.seq_len = count(fields.required("seq_len"));
  point.global_batch = count(fields.required("global_batch"));
  const Value& microbatch = fields.required("microbatch_size");
  point.microbatch_size = microbatch.text == "auto" ? kAutoMicrobatch : count(microbatch);
  point.precision = as_name<Precision>(fields.required("precision"));
  if (const Value* mode = fields.optional("mixed_precision"))
    point.mixed_precision = as_name<MixedPrecision>(*mode);
  if (const Value* sharding = fields.optional("sharding_strategy")) {
    point.sharding_strategy = as_name<Sharding>(*sharding);
  }
  integer("hybrid_group", point.hybrid_group, 0);
  if (const Value* mode = fields.optional("activation_checkpointing")) {
    point.activation_checkpointing = as_name<Checkpointing>(*mode);
  }
  if (const Value* blocks = fields.optional("checkpointing_blocks")) {
    point.checkpointing_blocks = as_text(*blocks);
    check_blocks(*blocks);
  }
  boolean("activation_cpu_offload", point.activation_cpu_offload);
  if (const Value* attention = fields.optional("attention"))
    point.attention = as_name<Attention>(*attention);
  point.gpus = count(fields.required("gpus"));
  integer("nodes", point.nodes, 1);
  point.gpu = as_text(fields.required("gpu"));
  point.cluster = as_text(fields.required("cluster"));
  integer("threads", point.threads, 0);
  integer("steps", point.steps, 1);
  integer("warmup", point.warmup, 0);
  boolean("exact_steps", point.exact_steps);
  boolean("deterministic", point.deterministic);
  boolean("fused_gelu", point.fused_gelu);
  if (const Value* data = fields.optional("data")) point.data = as_text(*data);
  if (const Value* seed = fields.optional("seed"))
    point.seed = static_cast<std::uint64_t>(as_integer(*seed, 0));
  if (const Value* env = fields.optional("env")) point.env = parse_texts(*env, "env");
  if (const Value* identity = fields.optional("identity"))
    point.identity = parse_texts(*identity, "identity");
  fields.finish();
  return point;
}

}  // namespace tessera::sweep
