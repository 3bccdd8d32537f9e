// SPDX-License-Identifier: Apache-2.0
// Hugging Face's config.json. What an absent key means is what the family's configuration class in
// transformers says.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "lib/model/foreign.h"

namespace tessera::model {

namespace {

// A config is {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, ...}.
constexpr std::string_view kFamilies[] = {"llama", "qwen2", "mistral", "gpt2", "mpt"};

constexpr double kUsualTheta = 10'000;

// Returns swiglu. Error(refused) if the gate is not silu, which is also called swish.
Activation gated(ForeignFields& fields) {
  const Value* act = fields.optional("hidden_act");
  if (act != nullptr && as_text(*act) != "silu" && as_text(*act) != "swish")
    not_built(*act, "hidden_act", "the engine's gated MLP is swiglu", "silu");
  return Activation::swiglu;
}

// The type of rope_scaling or rope_parameters: "default" is plain rope, every other one changes
// the frequencies.
void refuse_scaling(const Value& scaling, std::string_view key) {
  ForeignFields members(scaling, key);
  const Value* newer = members.optional("rope_type");
  const Value* older = members.optional("type");
  for (const Value* type : {newer, older}) {
    if (type == nullptr || as_text(*type) == "default") continue;
    throw Error(ExitCode::refused, scaling.where,
                fmt::format("{} {}: the engine's rope has the frequencies of rope_theta alone", key,
                            as_text(*type)),
                "set it to null to train without scaling");
  }
  if (newer == nullptr && older == nullptr)
    bad_value(scaling, fmt::format("{} lacks 'rope_type'", key), "null, or rope_type default");
}

// Returns the theta of rope. Error(refused) if anything else changes rope.
double theta(ForeignFields& fields) {
  double found = fields.number("rope_theta", kUsualTheta);
  if (const Value* scaling = fields.optional("rope_scaling"))
    refuse_scaling(*scaling, "rope_scaling");
  // transformers 5 writes both into one mapping.
  if (const Value* parameters = fields.optional("rope_parameters")) {
    refuse_scaling(*parameters, "rope_parameters");
    ForeignFields members(*parameters, "rope_parameters");
    constexpr std::array<std::string_view, 2> kTypes = {"rope_type", "type"};
    members.ignore(kTypes);
    found = members.number("rope_theta", found);
    members.refuse_unless("partial_rotary_factor", 1.0, "rope turns all of a head");
    members.finish();
  }
  fields.refuse_unless("partial_rotary_factor", 1.0, "rope turns all of a head");
  fields.refuse_unless("rope_interleaved", false, "rope's pairs lie half a head apart");
  return found;
}

// A window of at least the longest sequence hides nothing.
void refuse_window(ForeignFields& fields, std::int64_t max_seq_len, bool used) {
  const Value* window = fields.optional("sliding_window");
  if (used && window != nullptr && as_integer(*window) < max_seq_len) {
    not_built(*window, "sliding_window", "attention is over the whole sequence",
              "set it to null to train with full attention");
  }
  const Value* layers = fields.optional("layer_types");
  if (layers == nullptr) return;
  for (const Value* layer : as_list(*layers)) {
    if (as_text(*layer) != "full_attention")
      not_built(*layer, "layer_types", "attention is over the whole sequence", "full_attention");
  }
}

// What llama, qwen2 and mistral have in common.
Model parse_llama_like(ForeignFields& fields, double usual_eps) {
  Model model;
  Shape& shape = model.shape;
  shape.norm = Norm::rmsnorm;
  shape.positions = Positions::rope;
  shape.activation = gated(fields);
  shape.biases = {.qkv = false, .out = false, .mlp = false, .norm = false};
  shape.d_model = fields.count("hidden_size");
  shape.n_layers = fields.count("num_hidden_layers");
  shape.n_heads = fields.count("num_attention_heads");
  shape.ffn = fields.count("intermediate_size");
  shape.vocab = fields.count("vocab_size");
  shape.norm_eps = fields.number("rms_norm_eps", usual_eps);
  shape.rope_theta = theta(fields);
  shape.tied = fields.boolean("tie_word_embeddings", false);
  model.max_seq_len = fields.count("max_position_embeddings");
  // Without head_dim the heads divide the width among them.
  if (const Value* head_dim = fields.optional("head_dim")) {
    shape.head_dim = as_integer(*head_dim, 1, std::int64_t{1} << 32);
  } else {
    const Value& heads = fields.required("num_attention_heads");
    if (shape.d_model % shape.n_heads != 0) {
      bad_value(heads,
                fmt::format("hidden_size {} is not a multiple of num_attention_heads {}",
                            shape.d_model, shape.n_heads),
                "give head_dim");
    }
    shape.head_dim = shape.d_model / shape.n_heads;
  }
  fields.refuse_dropout(
      {"attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "mlp_dropout"});
  return model;
}

// The number of key and value heads; `otherwise` if the file says none, then Error(input) without.
std::int64_t grouped(ForeignFields& fields, std::int64_t n_heads,
                     std::optional<std::int64_t> otherwise) {
  const std::int64_t heads = otherwise ? fields.count("num_key_value_heads", *otherwise)
                                       : fields.count("num_key_value_heads");
  if (n_heads % heads != 0) {
    bad_value(fields.required("num_key_value_heads"),
              fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                          n_heads, heads),
              "choose one that divides it");
  }
  return heads;
}

// Llama: attention_bias and mlp_bias switch the biases on.
Model parse_llama(ForeignFields& fields) {
  Model model = parse_llama_like(fields, 1e-6);
  Shape& shape = model.shape;
  // Absent in the first Llamas, which had no grouped queries.
  shape.n_kv_heads = grouped(fields, shape.n_heads, shape.n_heads);
  shape.biases.qkv = shape.biases.out = fields.boolean("attention_bias", false);
  shape.biases.mlp = fields.boolean("mlp_bias", false);
  refuse_window(fields, model.max_seq_len, true);
  return model;
}

// Qwen2: queries, keys and values have biases. The window counts only if use_sliding_window is
// true.
Model parse_qwen2(ForeignFields& fields) {
  Model model = parse_llama_like(fields, 1e-6);
  model.shape.n_kv_heads = grouped(fields, model.shape.n_heads, std::nullopt);
  model.shape.biases.qkv = true;  // always, and no other
  const bool window_used = fields.boolean("use_sliding_window", false);
  refuse_window(fields, model.max_seq_len, window_used);
  constexpr std::array<std::string_view, 1> kOfTheWindow = {"max_window_layers"};
  fields.ignore(kOfTheWindow);
  fields.refuse_unless("use_mrope", false, "rope has one position a token");
  return model;
}

// Mistral: no biases, and the window always counts.
Model parse_mistral(ForeignFields& fields) {
  Model model = parse_llama_like(fields, 1e-6);
  model.shape.n_kv_heads = grouped(fields, model.shape.n_heads, std::nullopt);
  refuse_window(fields, model.max_seq_len, true);
  return model;
}

// GPT-2's own default is a dropout of 0.1, so an absent key means that too.
void refuse_gpt2_dropout(ForeignFields& fields, const Value& config) {
  for (const std::string_view key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    if (fields.optional(key) == nullptr) {
      throw Error(ExitCode::refused, config.where,
                  fmt::format("{} is not said, which for gpt2 means 0.1: the engine trains without "
                              "dropout",
                              key),
                  "set it to 0");
    }
    fields.refuse_dropout({key});
  }
}

// Returns the form of gelu. gelu_new, gelu_pytorch_tanh and gelu_fast are the tanh form.
Activation gpt2_activation(ForeignFields& fields) {
  const Value* act = fields.optional("activation_function");
  if (act == nullptr) return Activation::gelu_tanh;
  const std::string name = as_text(*act);
  if (name == "gelu") return Activation::gelu_erf;
  if (name != "gelu_new" && name != "gelu_pytorch_tanh" && name != "gelu_fast")
    not_built(*act, "activation_function", "not built", "gelu_new or gelu");
  return Activation::gelu_tanh;
}

// GPT-2: learned positions, layernorm and all biases, as a Shape has them by default.
Model parse_gpt2(ForeignFields& fields, const Value& config) {
  Model model;
  Shape& shape = model.shape;
  shape.d_model = fields.count("n_embd");
  shape.n_layers = fields.count("n_layer");
  shape.n_heads = shape.n_kv_heads = fields.count("n_head");
  if (shape.d_model % shape.n_heads != 0) {
    bad_value(fields.required("n_head"),
              fmt::format("n_embd {} is not a multiple of n_head {}", shape.d_model, shape.n_heads),
              "choose one that divides it");
  }
  shape.head_dim = shape.d_model / shape.n_heads;
  shape.ffn = fields.count("n_inner", 4 * shape.d_model);
  shape.vocab = fields.count("vocab_size");
  shape.activation = gpt2_activation(fields);
  shape.norm_eps = fields.number("layer_norm_epsilon", 1e-5);
  shape.tied = fields.boolean("tie_word_embeddings", true);
  model.max_seq_len = fields.count("n_positions");
  refuse_gpt2_dropout(fields, config);
  fields.refuse_unless("scale_attn_weights", true, "scores are scaled by 1 / sqrt(head_dim)");
  fields.refuse_unless("scale_attn_by_inverse_layer_idx", false,
                       "scores are scaled alike in every layer");
  fields.refuse_unless("reorder_and_upcast_attn", false, "scores are scaled alike in every layer");
  constexpr std::array<std::string_view, 10> kOfOtherTasks = {
      "n_ctx",
      "n_special",
      "output_past",
      "predict_special_tokens",
      "summary_activation",
      "summary_first_dropout",
      "summary_proj_to_labels",
      "summary_type",
      "summary_use_proj",
      "model_parallel",
  };
  fields.ignore(kOfOtherTasks);
  return model;
}

// Reads the config of one of kFamilies.
Model parse_family(const std::string& family, const Value& config) {
  if (family == "mpt") return parse_mpt_config(config);
  ForeignFields fields(config, fmt::format("a {} config", family));
  refuse_no_decoder(fields);
  Model model = family == "llama"   ? parse_llama(fields)
                : family == "qwen2" ? parse_qwen2(fields)
                : family == "gpt2"  ? parse_gpt2(fields, config)
                                    : parse_mistral(fields);
  fields.ignore(ignored_hugging_face_keys());
  fields.finish();
  return model;
}

}  // namespace

Model parse_hugging_face(const Value& config, const std::string& source) {
  ForeignFields about(config, "a config");
  const Value& type = about.required("model_type");
  const std::string family = as_text(type);
  if (std::ranges::find(kFamilies, family) == std::end(kFamilies)) {
    throw Error(ExitCode::refused, type.where, fmt::format("model_type '{}' is not built", family),
                fmt::format("one of {}", fmt::join(kFamilies, ", ")));
  }
  Model model = parse_family(family, config);
  model.name = name_of_file(source, about.text("_name_or_path", ""));
  return model;
}

}  // namespace tessera::model
