// SPDX-License-Identifier: Apache-2.0
#include "lib/model/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/model/data_folder.h"
#include "lib/model/foreign.h"

namespace tessera::model {

namespace fs = std::filesystem;

namespace {

Biases parse_biases(const Value& value) {
  Biases biases;
  Fields fields(value, "biases");
  biases.qkv = as_bool(fields.required("qkv"));
  biases.out = as_bool(fields.required("out"));
  biases.mlp = as_bool(fields.required("mlp"));
  biases.norm = as_bool(fields.required("norm"));
  fields.finish();
  return biases;
}

// "qwen2.5-14b" is {"qwen2.5-", 14000}: what to sort by, so that 3b comes before 14b, and 125m,
// whose family has no name, first.
std::pair<std::string, double> family_and_size(const std::string& name) {
  const std::size_t begin = name.rfind('-') + 1;  // 0 where there is none
  const auto number = parse_number(std::string_view(name).substr(begin, name.size() - begin - 1));
  const double unit = name.ends_with('b') ? 1000 : 1;
  return {name.substr(0, begin), number.value_or(0) * unit};
}

Model parse_own(const Value& value) {
  Fields fields(value, "a model");
  const Value& schema = fields.required("tessera_model");
  require_schema(schema, 1);
  const auto count = [](const Value& number) { return as_integer(number, 1, kLargestDimension); };
  Model model;
  const Value& name = fields.required("name");
  model.name = as_text(name);
  if (model.name.empty() || model.name.size() > 64)
    bad_value(name, "a model's name has 1 to 64 characters");
  Shape& shape = model.shape;
  shape.d_model = count(fields.required("d_model"));
  shape.n_layers = count(fields.required("n_layers"));
  shape.n_heads = count(fields.required("n_heads"));
  shape.ffn = count(fields.required("ffn"));
  shape.vocab = count(fields.required("vocab"));
  model.max_seq_len = count(fields.required("max_seq_len"));
  model.lr = as_number(fields.required("lr"));
  const Value* kv_heads = fields.optional("n_kv_heads");
  shape.n_kv_heads = kv_heads != nullptr ? count(*kv_heads) : shape.n_heads;
  if (const Value* head_dim = fields.optional("head_dim")) {
    shape.head_dim = count(*head_dim);
  } else if (shape.d_model % shape.n_heads == 0) {
    shape.head_dim = shape.d_model / shape.n_heads;
  } else {
    bad_value(
        value,
        fmt::format("d_model {} is not a multiple of n_heads {}", shape.d_model, shape.n_heads),
        "give head_dim");
  }
  if (const Value* norm = fields.optional("norm")) shape.norm = as_name<Norm>(*norm);
  if (const Value* positions = fields.optional("positions"))
    shape.positions = as_name<Positions>(*positions);
  if (const Value* activation = fields.optional("activation"))
    shape.activation = as_name<Activation>(*activation);
  if (const Value* biases = fields.optional("biases")) shape.biases = parse_biases(*biases);
  if (const Value* tied = fields.optional("tied")) shape.tied = as_bool(*tied);
  if (const Value* eps = fields.optional("norm_eps")) shape.norm_eps = as_number(*eps);
  if (const Value* theta = fields.optional("rope_theta")) shape.rope_theta = as_number(*theta);
  fields.finish();
  return model;
}

Model parse_any(const Value& value, const std::string& source) {
  if (value.find("tessera_model") != nullptr) return parse_own(value);
  if (value.find("model_type") != nullptr) return parse_hugging_face(value, source);
  if (is_llm_foundry(value)) return parse_llm_foundry(value, source);
  bad_value(value, "is no model",
            "a model says tessera_model: 1, or is Hugging Face's config.json (model_type) or "
            "llm-foundry's YAML (name: mpt_causal_lm)");
}

// A pipe or a file of any name. YAML in braces is not JSON, and JSON with tabs is not YAML.
Value parse_either(const std::string& text, const std::string& path) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') {
    try {
      return parse_json(text, path);
    } catch (const Error&) {
      return parse_yaml(text, path);
    }
  }
  return parse_yaml(text, path);
}

}  // namespace

Model parse_model(const Value& value, const std::string& source) {
  Model model = parse_any(value, source);
  model.source = source;
  if (const auto fault = contradiction(model.shape)) bad_value(value, *fault);
  return model;
}

Model read_model(const std::string& path) {
  const std::string text = read_file(path);
  return parse_model(path.ends_with(".json") ? parse_json(text, path) : parse_either(text, path),
                     path);
}

std::vector<std::string> built_in_models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(data_folder() / "models")) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    return family_and_size(a) < family_and_size(b);
  });
  return names;
}

Model find_model(const std::string& name, std::string_view where) {
  const bool bare = name.find('/') == std::string::npos;
  const std::string stem = name.ends_with(".yaml") ? name.substr(0, name.size() - 5) : name;
  if (bare && !stem.empty()) {
    const fs::path built_in = data_folder() / "models" / (stem + ".yaml");
    if (is_file(built_in)) return read_model(built_in.string());
  }
  if (is_file(name)) return read_model(name);
  if (!bare) throw_no_file(name, "model", where);
  throw Error(ExitCode::input, where, fmt::format("unknown model '{}'", name),
              suggestion(stem, built_in_models()));
}

}  // namespace tessera::model
