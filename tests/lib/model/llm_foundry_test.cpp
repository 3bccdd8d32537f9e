// SPDX-License-Identifier: Apache-2.0
// llm-foundry's YAML: the model section alone, and whole training files.
#include <doctest/doctest.h>

#include "lib/model/model_file.h"

using namespace tessera;
using namespace tessera::model;

namespace {

constexpr auto kSection =
    "name: mpt_causal_lm\ninit_device: meta\nd_model: 128\nn_heads: 2\nn_layers: 3\n"
    "expansion_ratio: 4\nmax_seq_len: 256\nvocab_size: 1000\n";

constexpr auto kTraining = R"(variables:
  max_seq_len: 256
  width: 128
max_seq_len: ${variables.max_seq_len}
model:
  name: mpt_causal_lm
  init_device: meta
  d_model: ${variables.width}
  n_heads: 2
  n_layers: 3
  expansion_ratio: 4
  max_seq_len: ${max_seq_len}
  vocab_size: 1000
  attn_config:
    attn_impl: flash
optimizer:
  name: decoupled_adamw
  lr: 6.0e-4
fsdp_config: {sharding_strategy: FULL_SHARD}
)";

Model parse_mpt(const std::string& yaml) {
  return parse_model(parse_yaml(yaml, "mpt-small.yaml"), "mpt-small.yaml");
}

Model with_mpt(const std::string& lines) {
  return parse_mpt(kSection + lines);
}

std::string fault_mpt(const std::string& yaml, ExitCode code) {
  try {
    parse_mpt(yaml);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "no error";
}

std::string refused_mpt(const std::string& lines) {
  return fault_mpt(kSection + lines, ExitCode::refused);
}
std::string wrong_mpt(const std::string& lines) {
  return fault_mpt(kSection + lines, ExitCode::input);
}

const Shape kShape{.d_model = 128,
                   .n_layers = 3,
                   .n_heads = 2,
                   .n_kv_heads = 2,
                   .head_dim = 64,
                   .ffn = 512,
                   .vocab = 1000,
                   .biases = {}};

}  // namespace

TEST_CASE("llm-foundry: the model section alone") {
  const Model model = parse_mpt(kSection);
  CHECK(model.name == "mpt-small");
  CHECK(model.max_seq_len == 256);
  CHECK(model.lr == 1e-4);
  CHECK(model.shape == kShape);
}

TEST_CASE("llm-foundry: a whole training file, with references and its learning rate") {
  const Model model = parse_mpt(kTraining);
  CHECK(model.shape == kShape);
  CHECK(model.max_seq_len == 256);
  CHECK(model.lr == 6e-4);
}

TEST_CASE("llm-foundry: what the published benchmark's yaml says is the built-in model") {
  std::string yaml = kSection;
  for (const auto& [from, to] : {std::pair{"128", "768"},
                                 {"heads: 2", "heads: 12"},
                                 {"layers: 3", "layers: 12"},
                                 {"1000", "50368"}}) {
    yaml.replace(yaml.find(from), std::string_view(from).size(), to);
  }
  CHECK(parse_mpt(yaml).shape == find_model("125m", "").shape);
}

TEST_CASE("llm-foundry: every key that changes the computation is mapped") {
  CHECK(with_mpt("no_bias: true\n").shape.biases ==
        Biases{.qkv = false, .out = false, .mlp = false, .norm = false});
  const Shape rms = with_mpt("norm_type: low_precision_rmsnorm\nnorm_eps: 1.0e-6\n").shape;
  CHECK(rms.norm == Norm::rmsnorm);
  CHECK(rms.norm_eps == 1e-6);
  CHECK(rms.biases == Biases{.qkv = true, .out = true, .mlp = true, .norm = false});
  CHECK_FALSE(with_mpt("tie_word_embeddings: false\n").shape.tied);
  CHECK(with_mpt("attn_config: {alibi: true}\n").shape.positions == Positions::alibi);
  // alibi and rope replace the table, whatever this says.
  CHECK(with_mpt("learned_pos_emb: true\nattn_config: {alibi: true}\n").shape.positions ==
        Positions::alibi);
  const Shape rope = with_mpt(
                         "attn_config: {rope: true, rope_theta: 500000, rope_impl: hf, "
                         "rope_hf_config: {type: no_scaling, factor: 1.0}}\n")
                         .shape;
  CHECK(rope.positions == Positions::rope);
  CHECK(rope.rope_theta == 5e5);
  // Not used without rope.
  CHECK(with_mpt("attn_config: {rope: false, rope_theta: 500000}\n").shape == kShape);
  CHECK(with_mpt("attn_config: {attn_type: multiquery_attention}\n").shape.n_kv_heads == 1);
  CHECK(with_mpt("attn_config: {attn_type: grouped_query_attention, kv_n_heads: 1}\n")
            .shape.n_kv_heads == 1);
  CHECK(with_mpt("ffn_config: {ffn_hidden_size: 300}\n").shape.ffn == 300);
  CHECK(with_mpt("ffn_config: {ffn_act_fn: {name: gelu, approximate: tanh}}\n").shape.activation ==
        Activation::gelu_tanh);
  CHECK(with_mpt("ffn_config: {ffn_type: mptglu, ffn_act_fn: {name: silu}}\n").shape.activation ==
        Activation::swiglu);
  std::string yaml = kSection;
  yaml.replace(yaml.find("ratio: 4"), 8, "ratio: 2.6667");
  CHECK(parse_mpt(yaml).shape.ffn == 341);
}

TEST_CASE("llm-foundry: what is not built is refused by name and place") {
  CHECK(refused_mpt("attn_config: {qk_ln: true}\n") ==
        "mpt-small.yaml:9:22: qk_ln true: queries and keys are not normalised; set it to false");
  CHECK(
      refused_mpt("attn_config: {clip_qkv: 6}\n") ==
      "mpt-small.yaml:9:25: clip_qkv 6: queries, keys and values are not clipped; set it to null");
  CHECK(refused_mpt("attn_config: {softmax_scale: 0.5}\n").find("softmax_scale 0.5: ") !=
        std::string::npos);
  CHECK(refused_mpt("attn_config: {prefix_lm: true}\n").find("prefix_lm true: ") !=
        std::string::npos);
  CHECK(refused_mpt("attn_config: {sliding_window_size: 128}\n")
            .ends_with("sliding_window_size 128: attention is over the whole sequence; set it to "
                       "-1"));
  CHECK(refused_mpt("attn_config: {attn_uses_sequence_id: true}\n").find("sequence_id true: ") !=
        std::string::npos);
  CHECK(refused_mpt("attn_config: {attn_pdrop: 0.1}\n").find("without dropout") !=
        std::string::npos);
  CHECK(refused_mpt("attn_config: {alibi: true, alibi_bias_max: 16}\n")
            .ends_with("alibi_bias_max 16: the slopes of alibi end at 2^-8; set it to 8"));
  CHECK(refused_mpt("attn_config: {rope: true, rope_hf_config: {type: linear}}\n")
            .ends_with("type linear: rope has the frequencies of rope_theta alone; set it to "
                       "no_scaling"));
  CHECK(refused_mpt("attn_config: {rope: true, rope_dail_config: {type: xpos}}\n")
            .ends_with("set it to original"));
  CHECK(refused_mpt("attn_config: {attn_type: sparse}\n").find("attn_type sparse: not built; ") !=
        std::string::npos);
  CHECK(refused_mpt("attn_config: {windows: 3}\n").find("unknown key 'windows' in attn_config") !=
        std::string::npos);
  CHECK(refused_mpt("learned_pos_emb: false\n") ==
        "mpt-small.yaml:9:18: learned_pos_emb false: a model without any positions is not built; "
        "set it to true");
  CHECK(refused_mpt("logit_scale: inv_sqrt_d_model\n") ==
        "mpt-small.yaml:9:14: logit_scale inv_sqrt_d_model: logits are not scaled; set it to null");
  CHECK(refused_mpt("embedding_fraction: 0.1\n").ends_with("set it to 1"));
  CHECK(
      refused_mpt("emb_pdrop: 0.1\n").ends_with("the engine trains without dropout; set it to 0"));
  CHECK(refused_mpt("resid_pdrop: 0.1\n")
            .ends_with("the engine trains without dropout; set it to 0"));
  CHECK(refused_mpt("norm_type: batchnorm\n").find("norm_type batchnorm: not built; ") !=
        std::string::npos);
  CHECK(refused_mpt("ffn_config: {ffn_type: mb_moe}\n") ==
        "mpt-small.yaml:9:24: ffn_type mb_moe: not built; mptmlp, or mptglu with silu");
  CHECK(
      refused_mpt("ffn_config: {ffn_type: mptglu}\n")
          .ends_with("ffn_type mptglu: its gelu gate is not built; give ffn_act_fn {name: silu}"));
  CHECK(refused_mpt("ffn_config: {ffn_act_fn: {name: relu}}\n").ends_with("not built; gelu"));
  CHECK(refused_mpt("block_overrides: {order: []}\n").find("all blocks are alike") !=
        std::string::npos);
  CHECK(refused_mpt("master_weights_dtype: bf16\n").find("fp32") != std::string::npos);
  CHECK(refused_mpt("moe: 8\n") ==
        "mpt-small.yaml:9:1: unknown key 'moe' in an mpt_causal_lm model: whether it changes the "
        "computation is not known; remove it if it changes nothing");
}

TEST_CASE("llm-foundry: contradictions and faults have their place") {
  CHECK(wrong_mpt("attn_config: {alibi: true, rope: true}\n") ==
        "mpt-small.yaml:9:34: alibi and rope are both on; keep one of them");
  CHECK(wrong_mpt("attn_config: {attn_type: grouped_query_attention}\n") ==
        "mpt-small.yaml:9:14: attn_config lacks 'kv_n_heads'");
  CHECK(wrong_mpt("attn_config: {attn_type: grouped_query_attention, kv_n_heads: 3}\n")
            .ends_with("n_heads 2 is not a multiple of kv_n_heads 3; choose one that divides it"));
  CHECK(wrong_mpt("attn_config: {kv_n_heads: 1}\n")
            .ends_with("kv_n_heads 1 contradicts attn_type multihead_attention; set attn_type to "
                       "grouped_query_attention"));
  CHECK(wrong_mpt("d_model: 3\n").find("stands twice") != std::string::npos);
  std::string heads = kSection;
  heads.replace(heads.find("heads: 2"), 8, "heads: 3");
  CHECK(fault_mpt(heads, ExitCode::input) ==
        "mpt-small.yaml:4:10: d_model 128 is not a multiple of n_heads 3; choose one that divides "
        "it");
  std::string ratio = kSection;
  ratio.replace(ratio.find("ratio: 4"), 8, "ratio: 0");
  CHECK(fault_mpt(ratio, ExitCode::input) ==
        "mpt-small.yaml:6:18: expansion_ratio 0 is out of range; 4");
  CHECK(wrong_mpt("norm_eps: ${nothing.here}\n") ==
        "mpt-small.yaml:9:11: ${nothing.here} names nothing in this file; write the value");
  CHECK(wrong_mpt("norm_eps: ${norm_eps}\n")
            .ends_with("${norm_eps} names no single value; write the value"));
  CHECK(wrong_mpt("attn_config: {alibi: true}\nffn_config: ${attn_config}\n") ==
        "mpt-small.yaml:10:13: ${attn_config} names no single value; write the value");
  CHECK(fault_mpt("model: {name: hf_causal_lm, pretrained: true}\n", ExitCode::refused) ==
        "mpt-small.yaml:1:15: name hf_causal_lm: only llm-foundry's own models are read; "
        "mpt_causal_lm, or give the model's config.json");
}
