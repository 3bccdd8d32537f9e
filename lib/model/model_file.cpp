#include "lib/model/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/base/file.h"
#include "lib/model/data_folder.h"

namespace tessera::model {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 32;

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

// "125m" before "1b" before "13b": by the number that the name says, others behind.
double said_size(const std::string& name) {
  double size = 0;
  std::size_t at = 0;
  while (at < name.size() && name[at] >= '0' && name[at] <= '9')
    size = size * 10 + (name[at++] - '0');
  if (at == 0 || at + 1 != name.size()) return 1e18;
  return name[at] == 'm' ? size : size * 1000;
}

}  // namespace

Model parse_model(const Value& value, const std::string& source) {
  Fields fields(value, "a model");
  const Value& schema = fields.required("tessera_model");
  require_schema(schema, 1);
  const auto count = [](const Value& number) { return as_integer(number, 1, kLargest); };
  Model model;
  model.source = source;
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
  fields.finish();
  if (const auto fault = contradiction(shape)) bad_value(value, *fault);
  return model;
}

Model read_model(const std::string& path) {
  if (path.ends_with(".json")) {
    throw Error(ExitCode::refused, path, "Hugging Face's config.json is not read yet",
                "write the shape as a tessera_model YAML");
  }
  return parse_model(read_yaml(path), path);
}

std::vector<std::string> built_in_models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(data_folder() / "models")) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    return std::pair(said_size(a), a) < std::pair(said_size(b), b);
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
