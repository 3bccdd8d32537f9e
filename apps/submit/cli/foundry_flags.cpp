#include "apps/submit/cli/foundry_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "lib/base/error.h"
#include "lib/base/numbers.h"

namespace tessera::apps {

namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

void only_true(const std::string& text, const std::string& flag, std::string_view reason) {
  if (!text.empty() && !foundry_bool(text, flag))
    throw Error(ExitCode::refused, flag, fmt::format("cannot be turned off: {}", reason));
}

void only_value(const std::string& text, const std::string& flag, std::string_view done,
                std::string_view reason) {
  if (!text.empty() && text != done) {
    throw Error(ExitCode::refused, flag, fmt::format("'{}' is not done: {}", text, reason),
                fmt::format("leave it out or give {}", done));
  }
}

}  // namespace

bool foundry_bool(const std::string& text, const std::string& flag) {
  const std::string word = lower(text);
  for (const char* yes : {"true", "t", "1", "yes", "y"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "f", "0", "no", "n"}) {
    if (word == no) return false;
  }
  throw Error(ExitCode::usage, flag, fmt::format("'{}' is not a boolean", text),
              "write true or false");
}

void declare_foundry(CLI::App& app, FoundryFlags& flags) {
  const char* group = "llm-foundry's (taken where they name what is done anyway)";
  const auto boolean = [&](const char* name, std::string& target) {
    app.add_option(name, target)->expected(0, 1)->group(group);
  };
  boolean("--fsdp_config_limit_all_gathers", flags.limit_all_gathers);
  boolean("--fsdp_config_forward_prefetch", flags.forward_prefetch);
  app.add_option("--fsdp_config_backward_prefetch", flags.backward_prefetch)->group(group);
  boolean("--activation_cpu_offload", flags.cpu_offload);
  app.add_option("--attn_impl", flags.attn_impl)->group(group);
  app.add_option("--pad_vocab_multiple", flags.pad_vocab_multiple)->group(group);
  app.add_option("--data_remote", flags.data_remote)->group(group);
  app.add_option("--image", flags.image)->group(group);
  app.add_option("--priority", flags.priority)->group(group);
  boolean("--wandb", flags.wandb);
  app.add_option("--git_branch", flags.git_branch)->group(group);
  app.add_option("--git_commit", flags.git_commit)->group(group);
}

void check_foundry(const FoundryFlags& flags, SubmitRequest& request) {
  only_true(flags.limit_all_gathers, "--fsdp_config_limit_all_gathers",
            "memory is planned for two gathered blocks at most");
  only_true(flags.forward_prefetch, "--fsdp_config_forward_prefetch",
            "the schedule always gathers the next block early");
  only_value(flags.backward_prefetch, "--fsdp_config_backward_prefetch", "BACKWARD_PRE",
             "the schedule gathers before the block that needs it");
  only_value(flags.attn_impl, "--attn_impl", "flash", "attention is always fused and exact");
  if (!flags.pad_vocab_multiple.empty()) {
    const auto multiple =
        require_integer(flags.pad_vocab_multiple, "--pad_vocab_multiple", 1, 65536);
    only_value(std::to_string(multiple), "--pad_vocab_multiple", "128",
               "the engine pads the vocabulary to 128 rows in memory, never in a formula");
  }
  if (!flags.data_remote.empty()) {
    throw Error(ExitCode::refused, "--data_remote", "data is synthetic or a token file",
                "leave it out, or give --set data=FILE");
  }
  const auto ignored = [&](const std::string& value, const char* flag, const char* reason) {
    if (!value.empty()) request.warnings.push_back(fmt::format("{}: ignored, {}", flag, reason));
  };
  if (!flags.wandb.empty()) foundry_bool(flags.wandb, "--wandb");
  ignored(flags.wandb, "--wandb", "run logs are files in the workspace");
  ignored(flags.git_branch, "--git_branch", "the trainer beside submit runs");
  ignored(flags.git_commit, "--git_commit", "the trainer beside submit runs");
  ignored(flags.priority, "--priority", "no cluster that has priorities can run yet");
  ignored(flags.image, "--image", "planning needs none");
  if (!flags.image.empty())
    request.not_runnable.emplace_back("--image: runs in containers come with the clusters");
}

}  // namespace tessera::apps
