// SPDX-License-Identifier: Apache-2.0
#include "lib/model/foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace tessera::model {

namespace fs = std::filesystem;

namespace {

// Keys of any configuration that transformers writes and that change no shape: names, tokens,
// generation, output, storage. Initial values are ours (docs/formats.md), whatever the file says.
constexpr std::string_view kIgnored[] = {"_attn_implementation",
                                         "_attn_implementation_autoset",
                                         "_commit_hash",
                                         "_name_or_path",
                                         "architectures",
                                         "attn_implementation",
                                         "auto_map",
                                         "bad_words_ids",
                                         "begin_suppress_tokens",
                                         "bos_token_id",
                                         "chunk_size_feed_forward",
                                         "custom_pipelines",
                                         "decoder_start_token_id",
                                         "diversity_penalty",
                                         "do_sample",
                                         "dtype",
                                         "early_stopping",
                                         "encoder_no_repeat_ngram_size",
                                         "eos_token_id",
                                         "exponential_decay_length_penalty",
                                         "finetuning_task",
                                         "forced_bos_token_id",
                                         "forced_eos_token_id",
                                         "gradient_checkpointing",
                                         "id2label",
                                         "initializer_range",
                                         "is_decoder",
                                         "is_llama_config",
                                         "label2id",
                                         "length_penalty",
                                         "max_length",
                                         "min_length",
                                         "model_type",
                                         "no_repeat_ngram_size",
                                         "num_beam_groups",
                                         "num_beams",
                                         "num_labels",
                                         "num_return_sequences",
                                         "output_attentions",
                                         "output_hidden_states",
                                         "output_scores",
                                         "pad_token_id",
                                         "prefix",
                                         "pretraining_tp",
                                         "problem_type",
                                         "remove_invalid_values",
                                         "repetition_penalty",
                                         "return_dict",
                                         "return_dict_in_generate",
                                         "sep_token_id",
                                         "suppress_tokens",
                                         "task_specific_params",
                                         "temperature",
                                         "tf_legacy_loss",
                                         "tie_encoder_decoder",
                                         "tokenizer_class",
                                         "tokenizer_name",
                                         "top_k",
                                         "top_p",
                                         "torch_dtype",
                                         "torchscript",
                                         "transformers.js_config",
                                         "transformers_version",
                                         "typical_p",
                                         "unk_token_id",
                                         "unsloth_version",
                                         "use_bfloat16",
                                         "use_cache"};

std::string_view shown(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::list:
      return "[...]";
    case Value::Kind::map:
      return "{...}";
    case Value::Kind::scalar:
      break;
  }
  return value.text;
}

bool is_plain(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 64 &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

}  // namespace

std::span<const std::string_view> ignored_hugging_face_keys() {
  return kIgnored;
}

std::string name_of_file(const std::string& source, std::string_view said) {
  const fs::path path(source);
  std::string stem = path.stem().string();
  if (stem != "config" && is_plain(stem)) return stem;
  // "meta-llama/Llama-2-7b-hf" means Llama-2-7b-hf.
  const std::string_view last = said.substr(said.find_last_of('/') + 1);
  if (is_plain(last)) return std::string(last);
  const std::string folder = path.parent_path().filename().string();
  return is_plain(folder) ? folder : "config";
}

void not_built(const Value& value, std::string_view key, std::string_view reason,
               std::string_view fix) {
  throw Error(ExitCode::refused, value.where, fmt::format("{} {}: {}", key, shown(value), reason),
              fix);
}

ForeignFields::ForeignFields(const Value& map, std::string_view what)
    : map_(map), what_(what), fields_(map, what) {}

const Value* ForeignFields::optional(std::string_view key) {
  known_.push_back(key);
  return fields_.optional(key);
}

const Value& ForeignFields::required(std::string_view key) {
  known_.push_back(key);
  return fields_.required(key);
}

std::int64_t ForeignFields::count(std::string_view key) {
  return as_integer(required(key), 1, kLargestDimension);
}

std::int64_t ForeignFields::count(std::string_view key, std::int64_t otherwise) {
  const Value* value = optional(key);
  return value != nullptr ? as_integer(*value, 1, kLargestDimension) : otherwise;
}

double ForeignFields::number(std::string_view key, double otherwise) {
  const Value* value = optional(key);
  return value != nullptr ? as_number(*value) : otherwise;
}

bool ForeignFields::boolean(std::string_view key, bool otherwise) {
  const Value* value = optional(key);
  return value != nullptr ? as_bool(*value) : otherwise;
}

std::string ForeignFields::text(std::string_view key, std::string_view otherwise) {
  const Value* value = optional(key);
  return value != nullptr ? as_text(*value) : std::string(otherwise);
}

void ForeignFields::refuse_unless(std::string_view key, bool off, std::string_view reason) {
  const Value* value = optional(key);
  if (value != nullptr && as_bool(*value) != off)
    not_built(*value, key, reason, fmt::format("set it to {}", off));
}

void ForeignFields::refuse_unless(std::string_view key, double off, std::string_view reason) {
  const Value* value = optional(key);
  if (value != nullptr && as_number(*value) != off)
    not_built(*value, key, reason, fmt::format("set it to {}", off));
}

void ForeignFields::refuse_unless(std::string_view key, const char* off, std::string_view reason) {
  const Value* value = optional(key);
  if (value != nullptr && as_text(*value) != off)
    not_built(*value, key, reason, fmt::format("set it to {}", off));
}

void ForeignFields::refuse_if_set(std::string_view key, std::string_view reason) {
  if (const Value* value = optional(key)) not_built(*value, key, reason, "set it to null");
}

void ForeignFields::refuse_dropout(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys)
    refuse_unless(key, 0.0, "the engine trains without dropout");
}

void ForeignFields::ignore(std::span<const std::string_view> keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
}

void ForeignFields::finish() {
  for (const auto& [key, value] : map_.members) {
    if (value.is_null() || std::ranges::find(known_, key) != known_.end()) continue;
    std::vector<std::string_view> absent;
    for (const std::string_view known : known_) {
      if (map_.find(known) == nullptr) absent.push_back(known);
    }
    // A list of all known keys helps nobody.
    const std::string near = suggestion(key, std::span<const std::string_view>(absent));
    throw Error(
        ExitCode::refused, value.key_where.empty() ? value.where : value.key_where,
        fmt::format("unknown key '{}' in {}: whether it changes the computation is not known", key,
                    what_),
        near.starts_with("did you mean") ? near : "remove it if it changes nothing");
  }
}

void refuse_no_decoder(ForeignFields& fields) {
  fields.refuse_unless("is_encoder_decoder", false, "only decoders are built");
  fields.refuse_unless("add_cross_attention", false, "only decoders are built");
  fields.refuse_if_set("cross_attention_hidden_size", "only decoders are built");
  fields.refuse_if_set("quantization_config", "quantised weights are not trained");
  const Value* heads = fields.optional("pruned_heads");
  if (heads != nullptr && !(heads->members.empty() && heads->items.empty()))
    not_built(*heads, "pruned_heads", "all heads are computed", "set it to {}");
}

}  // namespace tessera::model
