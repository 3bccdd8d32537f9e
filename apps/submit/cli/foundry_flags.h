// llm-foundry's flags that set what this engine does anyway: taken where they name that, refused
// with the reason where they name another thing.
#pragma once

#include <string>

#include "apps/submit/request.h"

namespace CLI {
class App;
}

namespace tessera::apps {

struct FoundryFlags {
  std::string limit_all_gathers;
  std::string forward_prefetch;
  std::string backward_prefetch;
  std::string attn_impl;
  std::string pad_vocab_multiple;
  std::string cpu_offload;
  std::string data_remote;
  std::string image;
  std::string priority;
  std::string wandb;
  std::string git_branch;
  std::string git_commit;
};

void declare_foundry(CLI::App& app, FoundryFlags& flags);

// Error(usage, refused); warnings of what is ignored go into the request.
void check_foundry(const FoundryFlags& flags, SubmitRequest& request);

// As llm-foundry reads booleans. Error(usage).
bool foundry_bool(const std::string& text, const std::string& flag);

}  // namespace tessera::apps
