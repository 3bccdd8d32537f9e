// SPDX-License-Identifier: Apache-2.0
// MPT: llm-foundry's YAML and Hugging Face's config.json of model_type mpt, which hold the same
// keys. What an absent key means is what llm-foundry's MPTConfig says.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "lib/model/foreign.h"

namespace tessera::model {

namespace {

constexpr std::string_view kOfTraining = "mpt_causal_lm";

// How things are computed, stored, initialised or logged, not what is computed.
constexpr std::string_view kIgnoredOfMpt[] = {"activation_checkpointing_target",
                                              "additional_train_metrics",
                                              "allow_embedding_resizing",
                                              "attn_impl",
                                              "fc_type",
                                              "init_config",
                                              "init_device",
                                              "loss_fn",
                                              "name",
                                              "param_init_fn",
                                              "tokenizer_name",
                                              "use_cache",
                                              "use_pad_tok_in_ffn",
                                              "use_train_metrics",
                                              "verbose"};

// What attn_config says about the shape.
struct AttentionPart {
  Positions positions = Positions::learned;
  double rope_theta = Shape{}.rope_theta;
  std::int64_t n_kv_heads = 0;
};

// Throws Error(refused) if rope's frequencies are scaled.
void refuse_rope_variants(ForeignFields& attention) {
  if (const Value* dail = attention.optional("rope_dail_config")) {
    ForeignFields members(*dail, "rope_dail_config");
    members.refuse_unless("type", "original", "rope has the frequencies of rope_theta alone");
  }
  if (const Value* hf = attention.optional("rope_hf_config")) {
    ForeignFields members(*hf, "rope_hf_config");
    members.refuse_unless("type", "no_scaling", "rope has the frequencies of rope_theta alone");
  }
}

// Reads {alibi: true} or {rope: true, rope_theta: 10000}. Neither of them means learned positions.
Positions attention_positions(ForeignFields& attention, double& rope_theta) {
  const bool alibi = attention.boolean("alibi", false);
  const Value* rope_value = attention.optional("rope");
  const bool rope = rope_value != nullptr && as_bool(*rope_value);
  const double theta = attention.number("rope_theta", Shape{}.rope_theta);
  if (alibi && rope) bad_value(*rope_value, "alibi and rope are both on", "keep one of them");
  if (alibi) attention.refuse_unless("alibi_bias_max", 8.0, "the slopes of alibi end at 2^-8");
  if (rope) {
    rope_theta = theta;
    refuse_rope_variants(attention);
  }
  constexpr std::array<std::string_view, 4> kOfPositions = {"alibi_bias_max", "rope_impl",
                                                            "rope_dail_config", "rope_hf_config"};
  attention.ignore(kOfPositions);
  return alibi ? Positions::alibi : rope ? Positions::rope : Positions::learned;
}

// Returns the key and value heads by attn_type: all heads, one, or kv_n_heads. Error(input) if
// kv_n_heads contradicts it.
std::int64_t kv_heads(ForeignFields& attention, std::int64_t n_heads) {
  const Value* type = attention.optional("attn_type");
  const Value* given = attention.optional("kv_n_heads");
  const std::string name = type != nullptr ? as_text(*type) : "multihead_attention";
  if (name == "grouped_query_attention") {
    const std::int64_t heads = attention.count("kv_n_heads");
    if (n_heads % heads != 0) {
      bad_value(*given,
                fmt::format("n_heads {} is not a multiple of kv_n_heads {}", n_heads, heads),
                "choose one that divides it");
    }
    return heads;
  }
  if (type != nullptr && name != "multihead_attention" && name != "multiquery_attention") {
    not_built(*type, "attn_type", "not built",
              "multihead_attention, grouped_query_attention or multiquery_attention");
  }
  const std::int64_t heads = name == "multihead_attention" ? n_heads : 1;
  if (given != nullptr && as_integer(*given) != heads) {
    bad_value(*given, fmt::format("kv_n_heads {} contradicts attn_type {}", given->text, name),
              "set attn_type to grouped_query_attention");
  }
  return heads;
}

AttentionPart parse_attention(const Value& section, std::int64_t n_heads) {
  ForeignFields attention(section, "attn_config");
  AttentionPart part;
  part.positions = attention_positions(attention, part.rope_theta);
  part.n_kv_heads = kv_heads(attention, n_heads);
  // Features that the engine does not have: each must be off.
  attention.refuse_dropout({"attn_pdrop"});
  attention.refuse_unless("qk_ln", false, "queries and keys are not normalised");
  attention.refuse_unless("qk_gn", false, "queries and keys are not normalised");
  attention.refuse_if_set("clip_qkv", "queries, keys and values are not clipped");
  attention.refuse_if_set("softmax_scale", "scores are scaled by 1 / sqrt(head_dim)");
  attention.refuse_if_set("attn_logit_softcapping", "scores are not capped");
  attention.refuse_unless("prefix_lm", false, "attention is causal");
  attention.refuse_unless("attn_uses_sequence_id", false, "a sequence is one document");
  attention.refuse_unless("sliding_window_size", -1.0, "attention is over the whole sequence");
  constexpr std::array<std::string_view, 2> kHow = {"attn_impl", "fused_qkv"};
  attention.ignore(kHow);
  // What transformers writes for its own configuration class of this section.
  attention.ignore(ignored_hugging_face_keys());
  attention.finish();
  return part;
}

// {name: gelu, approximate: none | tanh} or {name: silu}.
Activation parse_ffn_activation(const Value& section, bool gated) {
  ForeignFields members(section, "ffn_act_fn");
  const Value& name = members.required("name");
  const bool tanh = members.text("approximate", "none") == "tanh";
  members.finish();
  if (gated) {
    if (as_text(name) != "silu")
      not_built(name, "ffn_act_fn", "the engine's gated MLP is swiglu", "silu");
    return Activation::swiglu;
  }
  if (as_text(name) != "gelu") not_built(name, "ffn_act_fn", "not built", "gelu");
  return tanh ? Activation::gelu_tanh : Activation::gelu_erf;
}

// Reads {ffn_type: mptglu, ffn_act_fn: {name: silu}, ffn_hidden_size: 11008}.
void parse_ffn(const Value& section, Shape& shape) {
  ForeignFields ffn(section, "ffn_config");
  const Value* type = ffn.optional("ffn_type");
  const std::string name = type != nullptr ? as_text(*type) : "mptmlp";
  if (type != nullptr && name != "mptmlp" && name != "mptglu")
    not_built(*type, "ffn_type", "not built", "mptmlp, or mptglu with silu");
  const bool gated = type != nullptr && name == "mptglu";
  if (const Value* activation = ffn.optional("ffn_act_fn")) {
    shape.activation = parse_ffn_activation(*activation, gated);
  } else if (gated) {
    not_built(*type, "ffn_type", "its gelu gate is not built", "give ffn_act_fn {name: silu}");
  }
  shape.ffn = ffn.count("ffn_hidden_size", shape.ffn);
  constexpr std::array<std::string_view, 1> kHow = {"fc_type"};
  ffn.ignore(kHow);
  ffn.finish();
}

// Returns the width of the MLP: expansion_ratio x d_model, rounded down; 4 x d_model if the file
// gives no ratio.
std::int64_t expanded(ForeignFields& fields, std::int64_t d_model) {
  const Value* ratio = fields.optional("expansion_ratio");
  if (ratio == nullptr) return 4 * d_model;
  const double width = std::floor(as_number(*ratio) * static_cast<double>(d_model));
  if (!(width >= 1 && width <= 0x1p32))
    bad_value(*ratio, fmt::format("expansion_ratio {} is out of range", ratio->text), "4");
  return static_cast<std::int64_t>(width);
}

// Low-precision and Triton variants compute the same norm.
Norm parse_norm(ForeignFields& fields) {
  const Value* type = fields.optional("norm_type");
  if (type == nullptr) return Norm::layernorm;
  const std::string name = as_text(*type);
  if (name == "layernorm" || name == "low_precision_layernorm") return Norm::layernorm;
  if (name == "rmsnorm" || name == "low_precision_rmsnorm" || name == "triton_rmsnorm")
    return Norm::rmsnorm;
  not_built(*type, "norm_type", "not built", "layernorm, rmsnorm or low_precision_ of them");
}

// `stated`: no_bias and alibi must stand there. transformers' own class for model_type mpt and
// llm-foundry's have opposite defaults for both, and a config.json may be of either.
Model parse_mpt(ForeignFields& fields, bool stated) {
  Model model;
  Shape& shape = model.shape;
  shape.d_model = fields.count("d_model");
  shape.n_layers = fields.count("n_layers");
  shape.n_heads = fields.count("n_heads");
  if (shape.d_model % shape.n_heads != 0) {
    bad_value(
        fields.required("n_heads"),
        fmt::format("d_model {} is not a multiple of n_heads {}", shape.d_model, shape.n_heads),
        "choose one that divides it");
  }
  shape.head_dim = shape.d_model / shape.n_heads;
  shape.ffn = expanded(fields, shape.d_model);
  shape.vocab = fields.count("vocab_size");
  model.max_seq_len = fields.count("max_seq_len");
  shape.norm = parse_norm(fields);
  shape.norm_eps = fields.number("layer_norm_epsilon", 1e-5);
  shape.norm_eps = fields.number("norm_eps", shape.norm_eps);
  shape.tied = fields.boolean("tie_word_embeddings", true);
  const bool biases =
      !(stated ? as_bool(fields.required("no_bias")) : fields.boolean("no_bias", false));
  shape.biases = {
      .qkv = biases, .out = biases, .mlp = biases, .norm = biases && shape.norm == Norm::layernorm};
  if (stated) ForeignFields(fields.required("attn_config"), "attn_config").required("alibi");
  AttentionPart attention{.n_kv_heads = shape.n_heads};
  if (const Value* section = fields.optional("attn_config"))
    attention = parse_attention(*section, shape.n_heads);
  shape.positions = attention.positions;
  shape.rope_theta = attention.rope_theta;
  shape.n_kv_heads = attention.n_kv_heads;
  // alibi and rope replace the table, whatever learned_pos_emb says.
  if (shape.positions == Positions::learned)
    fields.refuse_unless("learned_pos_emb", true, "a model without any positions is not built");
  if (const Value* section = fields.optional("ffn_config")) parse_ffn(*section, shape);

  // Features that the engine does not have: each must be off.
  fields.refuse_dropout({"resid_pdrop", "emb_pdrop"});
  fields.refuse_if_set("logit_scale", "logits are not scaled");
  fields.refuse_if_set("final_logit_softcapping", "logits are not capped");
  fields.refuse_if_set("block_overrides", "all blocks are alike");
  fields.refuse_if_set("master_weights_dtype", "the master weights are fp32");
  fields.refuse_if_set("peft_config", "all parameters are trained");
  fields.refuse_unless("embedding_fraction", 1.0, "gradients of the token table are not scaled");
  fields.refuse_unless("shift_labels", true, "a token's label is the next token");
  constexpr std::array<std::string_view, 1> kPositions = {"learned_pos_emb"};
  fields.ignore(kPositions);
  fields.ignore(kIgnoredOfMpt);
  return model;
}

// What ${path.to.key} names, from the top of the file.
const Value* at_path(const Value& file, std::string_view path) {
  const Value* value = &file;
  while (value != nullptr && !path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    value = value->find(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return value;
}

// Fills in the values that are one reference, to a single value.
// Example: "max_seq_len: ${variables.seq_len}". Error(input) if it names nothing or a whole
// section.
void fill_in(Value& value, const Value& file) {
  for (Member& member : value.members) fill_in(member.value, file);
  for (Value& item : value.items) fill_in(item, file);
  constexpr int kLongestChain = 32;
  for (int links = 0; value.text.starts_with("${") && value.text.ends_with('}'); ++links) {
    const std::string path = value.text.substr(2, value.text.size() - 3);
    const Value* found = at_path(file, path);
    if (found == nullptr)
      bad_value(value, fmt::format("${{{}}} names nothing in this file", path), "write the value");
    if (links == kLongestChain || found->kind == Value::Kind::map ||
        found->kind == Value::Kind::list) {
      bad_value(value, fmt::format("${{{}}} names no single value", path), "write the value");
    }
    // The place stays that of the reference, which is where the model says it.
    value.kind = found->kind;
    value.text = found->text;
    value.quoted = found->quoted;
  }
}

// Returns the `name` of a section; nullptr if there is none or it is no single value.
const Value* name_of(const Value& section) {
  const Value* name = section.find("name");
  return name != nullptr && name->kind == Value::Kind::scalar ? name : nullptr;
}

}  // namespace

Model parse_mpt_config(const Value& config) {
  ForeignFields fields(config, "an mpt config");
  refuse_no_decoder(fields);
  Model model = parse_mpt(fields, true);
  fields.ignore(ignored_hugging_face_keys());
  fields.finish();
  return model;
}

bool is_llm_foundry(const Value& file) {
  if (const Value* section = file.find("model")) return name_of(*section) != nullptr;
  const Value* name = name_of(file);
  return name != nullptr && name->text == kOfTraining;
}

Model parse_llm_foundry(const Value& file, const std::string& source) {
  // The section stands below `model`, or it is the whole file.
  const Value* whole = file.find("model");
  Value section = whole != nullptr ? *whole : file;
  fill_in(section, file);
  ForeignFields fields(section, "an mpt_causal_lm model");
  const Value& name = fields.required("name");
  if (as_text(name) != kOfTraining) {
    not_built(name, "name", "only llm-foundry's own models are read",
              "mpt_causal_lm, or give the model's config.json");
  }
  Model model = parse_mpt(fields, false);
  fields.finish();
  model.name = name_of_file(source, "");
  // The section alone says nothing of training.
  const Value* rate = whole != nullptr ? at_path(file, "optimizer.lr") : nullptr;
  if (rate != nullptr && !rate->is_null()) {
    Value filled = *rate;
    fill_in(filled, file);
    model.lr = as_number(filled);
  }
  return model;
}

}  // namespace tessera::model
