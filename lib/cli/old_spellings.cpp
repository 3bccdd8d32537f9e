// SPDX-License-Identifier: Apache-2.0
#include "lib/cli/old_spellings.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "lib/base/error.h"
#include "lib/cli/describe.h"

namespace tessera::cli {

namespace {

constexpr OldSpelling kOldSpellings[] = {
    {"submit", "--rebuild", "rebuild"},
    // llm-foundry's names, and the singular of a list's.
    {"submit", "--model_yamls", "--models"},
    {"submit", "--model_yaml", "--models"},
    {"submit", "--precision", "--precisions"},
    {"submit", "--types", "--precisions"},
    {"submit", "--microbatch_sizes", "--microbatch_size"},
    {"submit", "--gpu_nums", "--gpus"},
    {"submit", "--gpu_num", "--gpus"},
    {"submit", "--gpu_type", "--gpu_types"},
    {"submit", "--cluster", "--clusters"},
    {"submit", "--fsdp_config_mixed_precision", "--mixed_precision"},
    {"submit", "--fsdp_config_shard_strategy", "--sharding_strategy"},
    {"submit", "--fsdp_config_activation_checkpointing", "--activation_checkpointing"},

    {"trainer", "--capabilities", "capabilities"},
    {"trainer", "--measure-peak", "measure-peak"},
    {"trainer", "--print-schedule", "print-schedule"},
    {"trainer", "--bench-ops", "bench-ops"},
    {"trainer", "--selftest", "selftest"},
    {"trainer", "--pack-bytes", "pack-bytes"},
};

// The option of the program, or else of any of its verbs, that has this name.
const CLI::Option* find_option(const CLI::App& program, const std::string& flag) {
  if (const CLI::Option* option = program.get_option_no_throw(flag)) return option;
  for (const CLI::App* verb : verbs_of(program)) {
    if (const CLI::Option* option = verb->get_option_no_throw(flag)) return option;
  }
  return nullptr;
}

class Modernizer {
 public:
  Modernizer(const CLI::App& program, const std::vector<std::string>& words)
      : program_(program), words_(words) {}

  std::vector<std::string> result() {
    while (next_ < words_.size() && words_[next_] != "--") take_word();
    if (version_) return {"--version"};
    if (verb_.empty()) before_.swap(behind_);
    std::vector<std::string> all;
    if (!verb_.empty()) all.push_back(verb_);
    // Flags from before the verb come last, where no list among them takes the verb's arguments.
    for (const auto& part : {behind_, before_}) all.insert(all.end(), part.begin(), part.end());
    all.insert(all.end(), words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end());
    return all;
  }

 private:
  std::vector<std::string>& out() { return verb_.empty() ? before_ : behind_; }
  bool is_verb(const std::string& word) const {
    return verb_.empty() && find_verb(program_, word) != nullptr;
  }

  void take_word() {
    std::string word = words_[next_++];
    if (is_flag(word)) {
      take_flag(word);
    } else if (is_verb(word) && only_flags_) {
      verb_ = word;
    } else {
      // Behind an argument CLI11 finds the verb: "collect PROJECT show RUN".
      only_flags_ = false;
      out().push_back(word);
    }
  }

  void take_flag(const std::string& word) {
    const std::size_t equals = word.find('=');
    const bool has_value = equals != std::string::npos && equals + 1 < word.size();
    std::string flag = word.substr(0, equals);
    if (const OldSpelling* row = find_old_spelling(program_.get_name(), flag)) {
      if (row->now.starts_with('-')) {
        flag = row->now;
      } else if (verb_.empty() || verb_ == row->now) {
        verb_ = row->now;
        if (has_value) behind_.push_back(word.substr(equals + 1));
        return;
      }
    }
    // "-models" is not "-m odels".
    if (!flag.starts_with("--") && flag.size() > 2 && find_option(program_, "-" + flag) != nullptr)
      throw Error(ExitCode::usage, flag, "is no flag", fmt::format("did you mean -{}?", flag));
    // The program's own, wherever it stands.
    if (flag == "--version") version_ = true;
    out().push_back(equals != std::string::npos ? flag + word.substr(equals) : flag);
    const CLI::Option* option = find_option(program_, flag);
    if (option == nullptr || !takes_value(*option)) return;
    if (!has_value && needs_value(*option) && next_ < words_.size())
      out().push_back(words_[next_++]);
    if (!is_list(*option)) return;
    while (next_ < words_.size() && words_[next_] != "--" && !is_flag(words_[next_]) &&
           !is_verb(words_[next_]))
      out().push_back(words_[next_++]);
  }

  const CLI::App& program_;
  const std::vector<std::string>& words_;
  std::size_t next_ = 0;
  std::string verb_;
  bool version_ = false;
  bool only_flags_ = true;  // and their values, so far
  std::vector<std::string> before_;
  std::vector<std::string> behind_;
};

}  // namespace

std::span<const OldSpelling> old_spellings() {
  return kOldSpellings;
}

const OldSpelling* find_old_spelling(std::string_view program, std::string_view flag) {
  const auto* const row = std::ranges::find_if(kOldSpellings, [&](const OldSpelling& each) {
    return each.program == program && each.old == flag;
  });
  return row == std::end(kOldSpellings) ? nullptr : row;
}

std::vector<std::string> modern_words(const CLI::App& program,
                                      const std::vector<std::string>& words) {
  return Modernizer(program, words).result();
}

}  // namespace tessera::cli
