// SPDX-License-Identifier: Apache-2.0
// Models in other programs' files: Hugging Face's config.json and llm-foundry's training YAML.
//
// Such a file describes more than we compute, so each of its keys is one of three: mapped to the
// shape; of a feature that is not built, which is refused by name unless its value switches the
// feature off; or known to change nothing that one training step computes, and ignored. A key that
// is none of them is refused, not ignored: a misspelt or newer one would silently give the figures
// of another model.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/tree.h"
#include "lib/model/model.h"

namespace tessera::model {

// By model_type: llama, qwen2, mistral, gpt2, mpt. Error(refused) for another one and for what is
// not built, Error(input) for what is wrong; both with the place of the key.
Model parse_hugging_face(const Value& config, const std::string& source);

// A YAML with `name: mpt_causal_lm`, of the model section alone or of a whole training run with the
// section below `model`. ${path.to.key} is filled in from the file. Errors as above.
Model parse_llm_foundry(const Value& file, const std::string& source);

// Hugging Face's config of model_type mpt, whose keys are llm-foundry's. Does not set the name.
Model parse_mpt_config(const Value& config);

// Whether the file is llm-foundry's.
bool is_llm_foundry(const Value& file);

// What a plain name for the file is: its stem, but for "config" the last part of `said` (what the
// file calls itself), then of the folder's name. 1 to 64 letters, digits, '.', '_', '-'.
std::string name_of_file(const std::string& source, std::string_view said);

// Keys that Hugging Face writes into any model's config and that change no training step.
std::span<const std::string_view> ignored_hugging_face_keys();

// Reads a foreign mapping by the rules above. A null counts as absent everywhere. Holds a
// reference: the Value must outlive it.
class ForeignFields {
 public:
  ForeignFields(const Value& map, std::string_view what);  // what: "a llama config"

  const Value* optional(std::string_view key);  // nullptr if absent or null
  const Value& required(std::string_view key);  // Error(input) if absent or null
  std::int64_t count(std::string_view key);     // required, 1 to 2^32
  std::int64_t count(std::string_view key, std::int64_t otherwise);
  double number(std::string_view key, double otherwise);
  bool boolean(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);

  // The key's feature is not built: Error(refused) with `reason` unless its value is `off`, or it
  // is absent.
  void refuse_unless(std::string_view key, bool off, std::string_view reason);
  void refuse_unless(std::string_view key, double off, std::string_view reason);
  void refuse_unless(std::string_view key, const char* off, std::string_view reason);
  void refuse_if_set(std::string_view key, std::string_view reason);
  void refuse_dropout(std::initializer_list<std::string_view> keys);

  void ignore(std::span<const std::string_view> keys);
  void finish();  // Error(refused) for a key that nobody asked for

 private:
  const Value& map_;
  std::string what_;
  Fields fields_;
  std::vector<std::string_view> known_;  // literals of the readers
};

// Refuses what Hugging Face may say of any model and what is no training of a whole decoder:
// encoders, quantised weights, pruned heads.
void refuse_no_decoder(ForeignFields& fields);

// Error(refused) at `value`: "KEY TEXT: REASON; FIX".
[[noreturn]] void not_built(const Value& value, std::string_view key, std::string_view reason,
                            std::string_view fix);

}  // namespace tessera::model
