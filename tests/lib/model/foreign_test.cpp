// SPDX-License-Identifier: Apache-2.0
// Hugging Face's config.json: key sets as the families' real files have them, sizes our own.
#include "lib/model/foreign.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "lib/model/model_file.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::model;

namespace {

constexpr auto kLlama = R"({
  "_name_or_path": "someone/Small-Llama", "architectures": ["LlamaForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
  "head_dim": 32, "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.02,
  "intermediate_size": 352, "is_llama_config": true, "max_position_embeddings": 2048,
  "mlp_bias": false, "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 3,
  "num_key_value_heads": 2, "pad_token_id": null, "pretraining_tp": 1, "rms_norm_eps": 1e-06,
  "rope_interleaved": false, "rope_scaling": null, "rope_theta": 500000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers.js_config": {"dtype": "q4"},
  "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 1000})";

constexpr auto kQwen2 = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.02,
  "intermediate_size": 352, "max_position_embeddings": 32768, "max_window_layers": 24,
  "model_type": "qwen2", "num_attention_heads": 4, "num_hidden_layers": 3,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 4096, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
  "use_sliding_window": false, "vocab_size": 1000})";

constexpr auto kMistral = R"({
  "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.02,
  "intermediate_size": 448, "max_position_embeddings": 32768, "model_type": "mistral",
  "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 1,
  "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0",
  "use_cache": true, "vocab_size": 1000})";

constexpr auto kGpt2 = R"({
  "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.0,
  "bos_token_id": 50256, "embd_pdrop": 0.0, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 128, "n_head": 2,
  "n_layer": 3, "n_positions": 1024, "resid_pdrop": 0.0, "summary_activation": null,
  "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
  "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true}},
  "vocab_size": 1000})";

constexpr auto kMpt = R"({
  "architectures": ["MPTForCausalLM"],
  "attn_config": {"alibi": true, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0,
    "attn_type": "multihead_attention", "attn_uses_sequence_id": false, "clip_qkv": null,
    "prefix_lm": false, "qk_ln": false, "softmax_scale": null},
  "auto_map": {"AutoConfig": "configuration_mpt.MPTConfig"}, "d_model": 128, "emb_pdrop": 0,
  "embedding_fraction": 1.0, "expansion_ratio": 4,
  "init_config": {"emb_init_std": null, "name": "kaiming_normal_"}, "init_device": "cpu",
  "learned_pos_emb": true, "logit_scale": null, "max_seq_len": 2048, "model_type": "mpt",
  "n_heads": 2, "n_layers": 3, "no_bias": true, "norm_type": "low_precision_layernorm",
  "resid_pdrop": 0, "tokenizer_name": "EleutherAI/gpt-neox-20b", "torch_dtype": "bfloat16",
  "transformers_version": "4.28.1", "use_cache": false, "verbose": 0, "vocab_size": 1000})";

Model parse_config(const std::string& json, const std::string& path = "c.json") {
  return parse_model(parse_json(json, path), path);
}

// `json` with `key` set to `value`; added if it is not there, taken out if `value` is empty.
std::string with_config(std::string json, const std::string& key, const std::string& value) {
  const std::string name = fmt::format("\"{}\": ", key);
  const std::size_t at = json.find(name);
  if (at == std::string::npos) return json.insert(1, name + value + ", ");
  const std::size_t begin = at + name.size();
  int depth = 0;
  std::size_t end = begin;
  for (; end < json.size(); ++end) {
    if (json[end] == '[' || json[end] == '{') ++depth;
    if (depth == 0 && (json[end] == ',' || json[end] == '}')) break;
    if (json[end] == ']' || json[end] == '}') --depth;
  }
  if (value.empty()) return json.erase(at, json[end] == ',' ? end + 1 - at : end - at);
  return json.replace(begin, end - begin, value);
}

std::string fault_config(const std::string& json, ExitCode code) {
  try {
    parse_config(json);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
    return error.what();
  }
  return "no error";
}

std::string refused_config(const std::string& json) {
  return fault_config(json, ExitCode::refused);
}
std::string wrong_config(const std::string& json) {
  return fault_config(json, ExitCode::input);
}

}  // namespace

TEST_CASE("config.json of a llama") {
  const Model model = parse_config(kLlama, "my/llama.json");
  CHECK(model.name == "llama");
  CHECK(model.source == "my/llama.json");
  CHECK(model.max_seq_len == 2048);
  CHECK(model.lr == 1e-4);
  CHECK(model.shape == Shape{.d_model = 128,
                             .n_layers = 3,
                             .n_heads = 4,
                             .n_kv_heads = 2,
                             .head_dim = 32,
                             .ffn = 352,
                             .vocab = 1000,
                             .norm = Norm::rmsnorm,
                             .positions = Positions::rope,
                             .activation = Activation::swiglu,
                             .biases = {.qkv = false, .out = false, .mlp = false, .norm = false},
                             .tied = false,
                             .norm_eps = 1e-6,
                             .rope_theta = 5e5});
  CHECK(parse_config(with_config(kLlama, "head_dim", "64")).shape.head_dim == 64);
  CHECK(parse_config(with_config(kLlama, "head_dim", "")).shape.head_dim == 32);
  CHECK(parse_config(with_config(kLlama, "num_key_value_heads", "")).shape.n_kv_heads == 4);
  CHECK(parse_config(with_config(kLlama, "rms_norm_eps", "")).shape.norm_eps == 1e-6);
  CHECK(parse_config(with_config(kLlama, "rope_theta", "")).shape.rope_theta == 1e4);
  CHECK(parse_config(with_config(kLlama, "tie_word_embeddings", "true")).shape.tied);
  CHECK(parse_config(with_config(kLlama, "attention_bias", "true")).shape.biases ==
        Biases{.qkv = true, .out = true, .mlp = false, .norm = false});
  CHECK(parse_config(with_config(kLlama, "mlp_bias", "true")).shape.biases.mlp);
  // What transformers 5 writes.
  const std::string newer = with_config(with_config(kLlama, "rope_theta", ""), "rope_parameters",
                                        R"({"rope_theta": 20000.0, "rope_type": "default"})");
  CHECK(parse_config(newer).shape.rope_theta == 2e4);
}

TEST_CASE("config.json of qwen2, mistral, gpt2 and mpt") {
  Shape qwen2 = parse_config(kQwen2).shape;
  CHECK(qwen2.biases == Biases{.qkv = true, .out = false, .mlp = false, .norm = false});
  CHECK(qwen2.tied);
  CHECK(qwen2.rope_theta == 1e6);
  CHECK(qwen2.n_kv_heads == 2);

  const Shape mistral = parse_config(kMistral).shape;
  CHECK(mistral.biases == Biases{.qkv = false, .out = false, .mlp = false, .norm = false});
  CHECK_FALSE(mistral.tied);
  CHECK(mistral.n_kv_heads == 1);
  CHECK(mistral.norm_eps == 1e-5);

  const Model gpt2 = parse_config(kGpt2);
  CHECK(gpt2.max_seq_len == 1024);
  CHECK(gpt2.shape == Shape{.d_model = 128,
                            .n_layers = 3,
                            .n_heads = 2,
                            .n_kv_heads = 2,
                            .head_dim = 64,
                            .ffn = 512,
                            .vocab = 1000,
                            .activation = Activation::gelu_tanh,
                            .biases = {}});
  CHECK(parse_config(with_config(kGpt2, "n_inner", "300")).shape.ffn == 300);
  CHECK(parse_config(with_config(kGpt2, "n_inner", "null")).shape.ffn == 512);
  CHECK(parse_config(with_config(kGpt2, "activation_function", "\"gelu\"")).shape.activation ==
        Activation::gelu_erf);
  CHECK_FALSE(parse_config(with_config(kGpt2, "tie_word_embeddings", "false")).shape.tied);

  const Model mpt = parse_config(kMpt);
  CHECK(mpt.max_seq_len == 2048);
  CHECK(mpt.shape == Shape{.d_model = 128,
                           .n_layers = 3,
                           .n_heads = 2,
                           .n_kv_heads = 2,
                           .head_dim = 64,
                           .ffn = 512,
                           .vocab = 1000,
                           .positions = Positions::alibi,
                           .biases = {.qkv = false, .out = false, .mlp = false, .norm = false}});
}

TEST_CASE("the published sizes of mpt-7b give its published count") {
  std::string json = kMpt;
  for (const auto& [key, value] : {std::pair{"d_model", "4096"},
                                   {"n_heads", "32"},
                                   {"n_layers", "32"},
                                   {"vocab_size", "50432"}}) {
    json = with_config(json, key, value);
  }
  CHECK(parameter_count(parse_config(json).shape, 2048) == 6'649'286'656);
}

TEST_CASE("what a config is called") {
  CHECK(name_of_file("a/b/tiny.json", "x/y") == "tiny");
  CHECK(name_of_file("a/Llama-2/config.json", "meta/Other-7b") == "Other-7b");
  CHECK(name_of_file("a/Llama-2/config.json", "") == "Llama-2");
  CHECK(name_of_file("a/Llama-2/config.json", ".") == "Llama-2");
  CHECK(name_of_file("config.json", "") == "config");
  CHECK(name_of_file("a b/two words.json", "") == "config");
  CHECK(parse_config(kLlama, "x/config.json").name == "Small-Llama");
}

TEST_CASE("the content says what a file is, not its name") {
  const test::TemporaryFolder folder;
  const auto read = [&](const char* name, const std::string& text) {
    const std::string path = folder / name;
    std::ofstream(path) << text;
    return find_model(path, "-m");
  };
  CHECK(read("model", kLlama).shape == parse_config(kLlama).shape);
  CHECK(read("model.yaml", kLlama).shape == parse_config(kLlama).shape);
  CHECK(read("flow",
             "{tessera_model: 1, name: own, d_model: 64, n_layers: 1, n_heads: 1, ffn: 64, "
             "vocab: 64, max_seq_len: 8, lr: 1.0e-3}")
            .name == "own");
  CHECK(wrong_config("{\"hidden_size\": 1}") ==
        "c.json: is no model; a model says tessera_model: 1, or is Hugging Face's config.json "
        "(model_type) or llm-foundry's YAML (name: mpt_causal_lm)");
  CHECK(wrong_config("[]").starts_with("c.json: is no model"));
  CHECK_THROWS_WITH_AS(read("broken.json", "{\"a\": "),
                       (std::string(folder / "broken.json") + ": not valid JSON at byte 7").c_str(),
                       Error);
}

TEST_CASE("another family is refused with the known ones") {
  CHECK(refused_config(R"({"model_type": "mixtral", "num_local_experts": 8})") ==
        "c.json:model_type: model_type 'mixtral' is not built; one of llama, qwen2, mistral, gpt2, "
        "mpt");
}

TEST_CASE("what is not built is refused by name") {
  const auto llama = [](const char* key, const char* value) {
    return refused_config(with_config(kLlama, key, value));
  };
  CHECK(llama("rope_scaling", R"({"factor": 8.0, "rope_type": "llama3"})") ==
        "c.json:rope_scaling: rope_scaling llama3: the engine's rope has the frequencies of "
        "rope_theta alone; set it to null to train without scaling");
  CHECK(llama("rope_scaling", R"({"factor": 2.0, "type": "linear"})")
            .starts_with("c.json:rope_scaling: rope_scaling linear: "));
  CHECK(wrong_config(with_config(kLlama, "rope_scaling", R"({"factor": 2.0})")) ==
        "c.json:rope_scaling: rope_scaling lacks 'rope_type'; null, or rope_type default");
  CHECK(llama("rope_parameters", R"({"rope_type": "yarn", "rope_theta": 10000})")
            .starts_with("c.json:rope_parameters: rope_parameters yarn: "));
  CHECK(llama("attention_dropout", "0.1") ==
        "c.json:attention_dropout: attention_dropout 0.1: the engine trains without dropout; set "
        "it to 0");
  CHECK(llama("hidden_act", "\"gelu\"") ==
        "c.json:hidden_act: hidden_act gelu: the engine's gated MLP is swiglu; silu");
  CHECK(llama("rope_interleaved", "true") ==
        "c.json:rope_interleaved: rope_interleaved true: rope's pairs lie half a head apart; set "
        "it to false");
  CHECK(llama("partial_rotary_factor", "0.5").starts_with("c.json:partial_rotary_factor: "));
  CHECK(llama("quantization_config", "{}") ==
        "c.json:quantization_config: quantization_config {...}: quantised weights are not trained; "
        "set it to null");
  CHECK(llama("pruned_heads", R"({"0": [1]})").starts_with("c.json:pruned_heads: "));
  CHECK(llama("is_encoder_decoder", "true").starts_with("c.json:is_encoder_decoder: "));
  CHECK(refused_config(with_config(kMistral, "sliding_window", "4096")) ==
        "c.json:sliding_window: sliding_window 4096: attention is over the whole sequence; set it "
        "to null to train with full attention");
  CHECK(refused_config(with_config(kQwen2, "use_sliding_window", "true"))
            .starts_with("c.json:sliding_window: sliding_window 4096: "));
  CHECK(refused_config(with_config(kQwen2, "use_mrope", "true")).starts_with("c.json:use_mrope: "));
  CHECK(refused_config(
            with_config(kQwen2, "layer_types", R"(["full_attention", "sliding_attention"])")) ==
        "c.json:layer_types[1]: layer_types sliding_attention: attention is over the whole "
        "sequence; full_attention");
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
    CAPTURE(key);
    CHECK(
        refused_config(with_config(kGpt2, key, "0.1")) ==
        fmt::format("c.json:{}: {} 0.1: the engine trains without dropout; set it to 0", key, key));
    CHECK(refused_config(with_config(kGpt2, key, "")) ==
          fmt::format("c.json: {} is not said, which for gpt2 means 0.1: the engine trains without "
                      "dropout; set it to 0",
                      key));
  }
  CHECK(refused_config(with_config(kGpt2, "activation_function", "\"relu\"")) ==
        "c.json:activation_function: activation_function relu: not built; gelu_new or gelu");
  CHECK(refused_config(with_config(kGpt2, "scale_attn_weights", "false"))
            .starts_with("c.json:scale_attn_weights: "));
  CHECK(refused_config(with_config(kGpt2, "scale_attn_by_inverse_layer_idx", "true"))
            .starts_with("c.json:scale_attn_by_inverse_layer_idx: "));
  CHECK(refused_config(with_config(kGpt2, "add_cross_attention", "true"))
            .starts_with("c.json:add_cross_attention: "));
}

TEST_CASE("features that are switched off are no reason to refuse") {
  CHECK_NOTHROW(parse_config(with_config(kMistral, "sliding_window", "32768")));
  CHECK_NOTHROW(parse_config(with_config(kQwen2, "layer_types", R"(["full_attention"])")));
  CHECK_NOTHROW(parse_config(with_config(kLlama, "rope_scaling", R"({"rope_type": "default"})")));
  CHECK_NOTHROW(parse_config(with_config(kLlama, "pruned_heads", "{}")));
  CHECK_NOTHROW(parse_config(with_config(kLlama, "something_new", "null")));
}

TEST_CASE("a key that nobody knows is refused, not ignored") {
  CHECK(refused_config(with_config(kLlama, "residual_multiplier", "0.22")) ==
        "c.json:residual_multiplier: unknown key 'residual_multiplier' in a llama config: whether "
        "it changes the computation is not known; remove it if it changes nothing");
  CHECK(refused_config(with_config(with_config(kLlama, "num_key_value_heads", ""),
                                   "num_key_value_head", "2")) ==
        "c.json:num_key_value_head: unknown key 'num_key_value_head' in a llama config: whether it "
        "changes the computation is not known; did you mean num_key_value_heads?");
  // A key of another family too.
  CHECK(refused_config(with_config(kGpt2, "rope_theta", "10000"))
            .starts_with("c.json:rope_theta: unknown key"));
}

TEST_CASE("faults of a config have their place") {
  CHECK(wrong_config(with_config(kLlama, "hidden_size", "")) ==
        "c.json: a llama config lacks 'hidden_size'");
  CHECK(wrong_config(with_config(kLlama, "hidden_size", "\"128\"")) ==
        "c.json:hidden_size: '128' is quoted text, not an integer; remove the quotes");
  CHECK(wrong_config(with_config(kLlama, "vocab_size", "0")) ==
        "c.json:vocab_size: 0 is out of range; from 1 to 4294967296");
  CHECK(wrong_config(with_config(kLlama, "num_key_value_heads", "3")) ==
        "c.json:num_key_value_heads: num_attention_heads 4 is not a multiple of "
        "num_key_value_heads 3; choose one that divides it");
  CHECK(
      wrong_config(with_config(with_config(kLlama, "head_dim", ""), "num_attention_heads", "3")) ==
      "c.json:num_attention_heads: hidden_size 128 is not a multiple of num_attention_heads 3; "
      "give head_dim");
  CHECK(wrong_config(with_config(kLlama, "head_dim", "31")) ==
        "c.json: rope needs an even head_dim, not 31");
  CHECK(wrong_config(with_config(kLlama, "rms_norm_eps", "0.0")) ==
        "c.json: norm_eps 0 is not between 0 and 1");
  CHECK(wrong_config(with_config(kLlama, "rope_theta", "-1.0"))
            .starts_with("c.json: rope_theta -1 is not"));
  CHECK(wrong_config(with_config(kQwen2, "num_key_value_heads", "")) ==
        "c.json: a qwen2 config lacks 'num_key_value_heads'");
  CHECK(wrong_config(with_config(kGpt2, "n_head", "3")) ==
        "c.json:n_head: n_embd 128 is not a multiple of n_head 3; choose one that divides it");
  CHECK(wrong_config(with_config(kMpt, "no_bias", "")) == "c.json: an mpt config lacks 'no_bias'");
  CHECK(wrong_config(with_config(kMpt, "alibi", "")) ==
        "c.json:attn_config: attn_config lacks 'alibi'");
}

TEST_CASE("whatever stands at a key: a possible model, or one line that names the file") {
  for (const char* config : {kLlama, kQwen2, kMistral, kGpt2, kMpt}) {
    const Value whole = parse_json(config, "c.json");
    for (const Member& member : whole.members) {
      for (const char* junk : {"", "null", "true", "[]", "{}", "\"x\"", "-1", "0", "1e300", "0.5",
                               "4294967296", "9223372036854775807", "[[]]", R"({"type": []})"}) {
        CAPTURE(member.key);
        CAPTURE(junk);
        try {
          const Model model = parse_config(with_config(config, member.key, junk));
          CHECK_FALSE(contradiction(model.shape).has_value());
          CHECK(parameter_count(model.shape, 1) > 0);
          CHECK_FALSE(model.name.empty());
        } catch (const Error& error) {
          const std::string line = error.what();
          CHECK(line.starts_with("c.json"));
          CHECK(line.size() < 300);
          CHECK((error.code() == ExitCode::input || error.code() == ExitCode::refused));
        }
      }
    }
  }
}
