// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/train/reference.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lib/base/file.h"

namespace tessera::trainer::test {

namespace {

template <class T>
std::vector<T> slice(const std::string& bytes, std::size_t offset, std::size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), bytes.data() + offset * sizeof(T), count * sizeof(T));
  return values;
}

Setup setup_of(const nlohmann::json& shape) {
  const auto number = [&](const char* key) { return shape.at(key).get<std::int64_t>(); };
  const auto named = [&]<class E>(E& value, const char* key) {
    value = from_text<E>(shape.at(key).get<std::string>()).value();
  };
  const auto biases = shape.at("biases").get<std::vector<std::string>>();
  const auto has_bias = [&](const char* kind) {
    return std::ranges::find(biases, kind) != biases.end();
  };
  Setup setup{.memory = {.shape = {.d_model = number("d_model"),
                                   .n_layers = number("n_layers"),
                                   .n_heads = number("n_heads"),
                                   .n_kv_heads = number("n_kv_heads"),
                                   .head_dim = number("head_dim"),
                                   .ffn = number("ffn"),
                                   .vocab = number("vocab"),
                                   .biases = {.qkv = has_bias("qkv"),
                                              .out = has_bias("out"),
                                              .mlp = has_bias("mlp"),
                                              .norm = has_bias("norm")},
                                   .tied = shape.at("tied").get<bool>(),
                                   .norm_eps = shape.at("norm_eps").get<double>(),
                                   .rope_theta = shape.at("rope_theta").get<double>()},
                         .seq_len = number("seq_len"),
                         .device_batch = number("batch"),
                         .microbatch = number("microbatch")},
              .recipe = {.peak_lr = shape.at("lr").get<double>(),
                         .weight_decay = shape.at("weight_decay").get<double>()}};
  named(setup.memory.shape.norm, "norm");
  named(setup.memory.shape.positions, "positions");
  named(setup.memory.shape.activation, "activation");
  return setup;
}

// Splits "block.1.qkv.weight" into unit 2 and "qkv.weight".
void take_name(const std::string& name, std::int64_t layers, ReferenceParameter& parameter) {
  const std::string prefix = "block.";
  if (!name.starts_with(prefix)) {
    parameter.name = name;
    if (name.starts_with("head.")) parameter.unit = layers + 1;
    return;
  }
  std::size_t digits = 0;
  parameter.unit = std::stoll(name.substr(prefix.size()), &digits) + 1;
  parameter.name = name.substr(prefix.size() + digits + 1);
}

}  // namespace

TokenSource Reference::source() const {
  return [this](std::int64_t step, std::int64_t row, std::span<std::int32_t> into) {
    const std::int64_t begin =
        ((step - 1) * setup.memory.device_batch + row) * (setup.memory.seq_len + 1);
    std::copy_n(tokens.begin() + begin, into.size(), into.begin());
  };
}

std::vector<Reference> read_references() {
  const nlohmann::json index = nlohmann::json::parse(read_file("tests/data/reference/index.json"));
  std::vector<Reference> references;
  for (const nlohmann::json& shape : index.at("shapes")) {
    Reference reference;
    reference.name = shape.at("name").get<std::string>();
    reference.setup = setup_of(shape);
    reference.steps = shape.at("steps").get<std::int64_t>();
    reference.losses = shape.at("losses").get<std::vector<double>>();
    reference.grad_norms = shape.at("grad_norms").get<std::vector<double>>();
    const std::string bytes = read_file("tests/data/reference/" + reference.name + ".bin");
    for (const nlohmann::json& entry : shape.at("parameters")) {
      ReferenceParameter parameter;
      take_name(entry.at("name").get<std::string>(), shape.at("n_layers").get<std::int64_t>(),
                parameter);
      const auto count = entry.at("rows").get<std::size_t>() * entry.at("cols").get<std::size_t>();
      const auto offset = entry.at("offset").get<std::size_t>();
      parameter.begin = slice<float>(bytes, offset, count);
      parameter.gradient = slice<float>(bytes, offset + count, count);
      parameter.change = slice<float>(bytes, offset + 2 * count, count);
      reference.parameters.push_back(std::move(parameter));
    }
    const memory::Config& config = reference.setup.memory;
    reference.tokens = slice<std::int32_t>(
        bytes, shape.at("tokens_offset").get<std::size_t>(),
        static_cast<std::size_t>(reference.steps * config.device_batch * (config.seq_len + 1)));
    references.push_back(std::move(reference));
  }
  return references;
}

void set_weights(Engine& engine, const Reference& reference) {
  for (const ReferenceParameter& parameter : reference.parameters) {
    Tensor master = engine.memory().master(parameter.unit, parameter.name);
    master.rows = static_cast<std::int64_t>(parameter.begin.size()) / master.cols;
    engine.write(master, parameter.begin);
  }
  engine.refresh_low_precision();
}

std::vector<float> used_rows(Engine& engine, const Tensor& tensor, std::size_t elements) {
  std::vector<float> values = engine.read(tensor);
  values.resize(elements);
  return values;
}

}  // namespace tessera::trainer::test
