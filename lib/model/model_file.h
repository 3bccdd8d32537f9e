// SPDX-License-Identifier: Apache-2.0
// Model files (docs/formats.md, "Models"): `tessera_model: 1` YAML, built-in or the user's own,
// Hugging Face's config.json and llm-foundry's YAML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/tree.h"
#include "lib/model/model.h"

namespace tessera::model {

// A model in any of the formats: which one, its content says. Error(input) with the place of the
// fault, Error(refused) for a model that is not built (lib/model/foreign.h).
Model parse_model(const Value& value, const std::string& source);
Model read_model(const std::string& path);

// Names of the built-in models: MPT's first, then by family, each by size: 125m, ... 70b, cpu-2m,
// ... gpt2-124m, ... tinyllama-1.1b.
std::vector<std::string> built_in_models();

// A built-in name ("7b", also "7b.yaml"), or a file: what holds a '/' or names an existing file.
// Unknown: Error(input) at `where` with the nearest known name.
Model find_model(const std::string& name, std::string_view where);

}  // namespace tessera::model
