// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/foundry_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "lib/base/error.h"
#include "lib/base/numbers.h"

namespace tessera::apps {

namespace {

enum class Taken : std::uint8_t { one_value, never, ignored };

struct FoundryFlag {
  const char* name;
  const char* type;  // a boolean may stand without its value
  Taken taken;
  const char* value;  // that is taken
  const char* why;
};

constexpr const char* kBoolean = "true|false";
constexpr const char* kNumber = "N";

constexpr FoundryFlag kFoundryFlags[] = {
    {"--fsdp_config_limit_all_gathers", kBoolean, Taken::one_value, "true",
     "memory is planned for two gathered blocks at most"},
    {"--fsdp_config_forward_prefetch", kBoolean, Taken::one_value, "true",
     "the schedule always gathers the next block early"},
    {"--fsdp_config_backward_prefetch", "NAME", Taken::one_value, "BACKWARD_PRE",
     "the schedule gathers before the block that needs it"},
    {"--attn_impl", "NAME", Taken::one_value, "flash", "attention is always fused and exact"},
    {"--pad_vocab_multiple", kNumber, Taken::one_value, "128",
     "the engine pads the vocabulary to 128 rows in memory, never in a formula"},
    {"--data_remote", "URL", Taken::never, "", "data is synthetic or a token file"},
    {"--wandb", kBoolean, Taken::ignored, "", "run logs are files in the workspace"},
    {"--git_branch", "NAME", Taken::ignored, "", "the trainer beside submit runs"},
    {"--git_commit", "NAME", Taken::ignored, "", "the trainer beside submit runs"},
    {"--priority", "NAME", Taken::ignored, "", "no cluster that has priorities can run yet"},
    {"--image", "NAME", Taken::ignored, "", "planning needs none"},
};

std::string help_of(const FoundryFlag& flag) {
  switch (flag.taken) {
    case Taken::one_value:
      return fmt::format("Only {}: {}", flag.value, flag.why);
    case Taken::never:
      return fmt::format("Refused: {}", flag.why);
    case Taken::ignored:
      break;
  }
  return fmt::format("Ignored: {}", flag.why);
}

// In the words of the table, so that "1" is "true" and "0128" no number.
std::string normal(const FoundryFlag& flag, const std::string& text) {
  if (flag.type == kBoolean) return foundry_bool(text, flag.name) ? "true" : "false";
  if (flag.type == kNumber) return std::to_string(require_integer(text, flag.name, 1, 65536));
  return text;
}

}  // namespace

bool foundry_bool(const std::string& text, const std::string& flag) {
  std::string word = text;
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
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
  for (const FoundryFlag& flag : kFoundryFlags) {
    CLI::Option* option = app.add_option(flag.name, flags[flag.name], help_of(flag));
    option->type_name(flag.type)->group(
        "llm-foundry's flags, taken where they name what is done anyway");
    if (flag.type == kBoolean) option->expected(0, 1)->default_str("true");
  }
}

void check_foundry(const FoundryFlags& flags, SubmitRequest& request) {
  for (const FoundryFlag& flag : kFoundryFlags) {
    const auto given = flags.find(flag.name);
    if (given == flags.end() || given->second.empty()) continue;
    const std::string value = normal(flag, given->second);
    if (flag.taken == Taken::never)
      throw Error(ExitCode::refused, flag.name, flag.why, "leave it out, or give --set data=FILE");
    if (flag.taken == Taken::ignored) {
      request.warnings.push_back(fmt::format("{}: ignored, {}", flag.name, flag.why));
    } else if (value != flag.value) {
      const std::string what =
          flag.type == kBoolean ? "cannot be turned off" : fmt::format("'{}' is not done", value);
      throw Error(ExitCode::refused, flag.name, fmt::format("{}: {}", what, flag.why),
                  fmt::format("leave it out or give {}", flag.value));
    }
  }
  const auto image = flags.find("--image");
  if (image != flags.end() && !image->second.empty())
    request.not_runnable.emplace_back("--image: runs in containers come with the clusters");
}

}  // namespace tessera::apps
