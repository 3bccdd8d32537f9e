// SPDX-License-Identifier: Apache-2.0
// llm-foundry's flags that set what this engine does anyway: taken where they name that, refused
// with the reason where they name another thing, ignored with a warning where nothing here depends
// on them.
#pragma once

#include <map>
#include <string>

#include "apps/submit/request.h"

namespace CLI {
class App;
}

namespace tessera::apps {

using FoundryFlags = std::map<std::string, std::string>;  // as given, by flag

void declare_foundry(CLI::App& app, FoundryFlags& flags);

// Error(usage, refused); warnings of what is ignored go into the request.
void check_foundry(const FoundryFlags& flags, SubmitRequest& request);

// As llm-foundry reads booleans. Error(usage).
bool foundry_bool(const std::string& text, const std::string& flag);

}  // namespace tessera::apps
