// SPDX-License-Identifier: Apache-2.0
#include "lib/cli/describe.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

namespace tessera::cli {

namespace {

constexpr std::string_view kPlaceholders[] = {"DIR",     "FILE", "N",    "NAME",
                                              "PROJECT", "RUN",  "STEM", "TIME"};

std::vector<std::string> alternatives(const CLI::Option& option) {
  std::vector<std::string> parts;
  const std::string type = option.get_type_name();
  for (std::size_t start = 0; start <= type.size();) {
    const std::size_t end = std::min(type.find('|', start), type.size());
    parts.push_back(type.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

bool has_alternative(const CLI::Option& option, std::string_view wanted) {
  const auto parts = alternatives(option);
  return std::ranges::find(parts, wanted) != parts.end();
}

}  // namespace

bool is_flag(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && word != "--" &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

std::vector<const CLI::App*> verbs_of(const CLI::App& program) {
  return program.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* find_verb(const CLI::App& program, std::string_view name) {
  for (const CLI::App* verb : verbs_of(program)) {
    if (verb->get_name() == name) return verb;
  }
  return nullptr;
}

std::string full_name(const CLI::App& command) {
  const CLI::App* program = command.get_parent();
  return program == nullptr ? command.get_name()
                            : fmt::format("{} {}", program->get_name(), command.get_name());
}

std::vector<std::string> flag_groups(const CLI::App& command) {
  std::vector<std::string> groups;
  for (const CLI::Option* option : flags_of(command)) {
    if (std::ranges::find(groups, option->get_group()) == groups.end())
      groups.push_back(option->get_group());
  }
  // CLI11 makes --help first; it is looked for last.
  if (groups.size() > 1) std::ranges::rotate(groups, groups.begin() + 1);
  return groups;
}

std::vector<const CLI::Option*> flags_of(const CLI::App& command, const std::string& group) {
  std::vector<const CLI::Option*> flags = flags_of(command);
  std::erase_if(flags, [&](const CLI::Option* option) { return option->get_group() != group; });
  return flags;
}

std::vector<const CLI::Option*> flags_of(const CLI::App& command) {
  return command.get_options([](const CLI::Option* option) { return !option->get_positional(); });
}

std::vector<const CLI::Option*> arguments_of(const CLI::App& command) {
  return command.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

std::vector<std::string> flag_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

bool needs_value(const CLI::Option& option) {
  return option.get_items_expected_min() > 0;
}

bool is_list(const CLI::Option& option) {
  return option.get_items_expected_max() > 1;
}

std::string value_text(const CLI::Option& option) {
  if (!takes_value(option)) return "";
  std::string text = option.get_type_name();
  // "FIRST LAST" and "OUT FILE..." say themselves how many.
  if (is_list(option) && text.find(' ') == std::string::npos) text += "...";
  return needs_value(option) ? text : fmt::format("[{}]", text);
}

std::string argument_text(const CLI::Option& argument) {
  std::string type = argument.get_type_name();
  // Written out: "[PROJECT] [RUN...]".
  if (type.find(' ') != std::string::npos || type.starts_with('[')) return type;
  const std::string text = type + (is_list(argument) ? "..." : "");
  return argument.get_required() ? text : fmt::format("[{}]", text);
}

std::string usage(const CLI::App& command) {
  std::string line = full_name(command);
  for (const CLI::Option* argument : arguments_of(command)) line += " " + argument_text(*argument);
  return line;
}

std::vector<std::string> words_of_value(const CLI::Option& option) {
  std::vector<std::string> words = alternatives(option);
  if (words.size() < 2) return {};
  std::erase_if(words, [](const std::string& word) {
    return std::ranges::find(kPlaceholders, word) != std::end(kPlaceholders);
  });
  return words;
}

bool takes_file(const CLI::Option& option) {
  return has_alternative(option, "FILE");
}

bool takes_folder(const CLI::Option& option) {
  return has_alternative(option, "DIR");
}

std::string shown_name(const CLI::Option& option) {
  if (!option.get_positional()) return option.get_name();
  // "PROJECT" of "PROJECT|DIR" and of "[PROJECT] [RUN]"; "SHELL" of "bash|zsh|fish".
  std::string type = option.get_type_name();
  if (!words_of_value(option).empty()) {
    type = option.get_name();
    std::ranges::transform(type, type.begin(), [](unsigned char c) { return std::toupper(c); });
  }
  const std::size_t begin = type.starts_with('[') ? 1 : 0;
  return type.substr(begin, type.find_first_of("|] ", begin) - begin);
}

}  // namespace tessera::cli
