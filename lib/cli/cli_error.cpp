// SPDX-License-Identifier: Apache-2.0
#include "lib/cli/cli_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "lib/cli/command.h"
#include "lib/cli/describe.h"
#include "lib/cli/old_spellings.h"

namespace tessera::cli {

namespace {

// `program`, and the verb that was used.
std::vector<const CLI::App*> used(const CLI::App& program) {
  std::vector<const CLI::App*> commands{&program};
  for (const CLI::App* verb : program.get_subcommands()) commands.push_back(verb);
  return commands;
}

// The option that CLI11 names before the colon.
std::string option_named(const CLI::App& program, const std::string& name) {
  for (const CLI::App* command : used(program)) {
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_name() == name) return shown_name(*option);
    }
  }
  return name;
}

// "did you mean X?" for the nearest of what is known, if one is near. One letter is near to all.
std::optional<std::string> near(const std::string& given, const std::vector<std::string>& known) {
  constexpr std::size_t kLetter = 2;  // with its dash
  if (given.size() <= kLetter) return std::nullopt;
  return did_you_mean(given, known);
}

std::string see_help(const CLI::App& command, const char* what) {
  return fmt::format("{} --help lists {}", full_name(command), what);
}

// Flags of `command` as they are typed behind `prefix`.
std::vector<std::string> typed_flags(const CLI::App& command, const std::string& prefix) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : flags_of(command)) {
    for (const std::string& name : flag_names(*option)) flags.push_back(prefix + name);
  }
  return flags;
}

Error unknown_flag(const CLI::App& program, const std::string& given) {
  const CLI::App& command = *used(program).back();
  const std::string name = full_name(command);
  const std::string other_command = fmt::format("does not go with {}", name);
  if (const OldSpelling* row = find_old_spelling(program.get_name(), given)) {
    return {ExitCode::usage, given, other_command,
            fmt::format("write {} {}", program.get_name(), row->now)};
  }
  std::vector<const CLI::App*> others = verbs_of(program);
  others.insert(others.begin(), &program);
  std::erase(others, &command);
  std::vector<std::string> takers;
  for (const CLI::App* other : others) {
    if (other->get_option_no_throw(given) != nullptr) takers.push_back(full_name(*other));
  }
  if (!takers.empty()) {
    std::string fix = fmt::format("write {} {}", takers.front(), given);
    if (takers.size() > 1) fix = fmt::format("it goes with {}", fmt::join(takers, ", "));
    if (takers.front() == program.get_name())
      fix = fmt::format("leave it out; {}", see_help(command, "what does"));
    return {ExitCode::usage, given, other_command, fix};
  }
  const std::string unknown = fmt::format("is no flag of {}", name);
  std::optional<std::string> fix = near(given, typed_flags(command, ""));
  for (const CLI::App* other : others) {
    const std::string prefix = full_name(*other) + " ";
    if (!fix && near(given, typed_flags(*other, "")))
      fix = near(prefix + given, typed_flags(*other, prefix));
  }
  for (const OldSpelling& row : old_spellings()) {
    if (!fix && row.program == program.get_name() && near(given, {std::string(row.old)}))
      fix = fmt::format("did you mean {} {}?", row.program, row.now);
  }
  return {ExitCode::usage, given, unknown, fix.value_or(see_help(command, "them"))};
}

Error unknown_word(const CLI::App& program, const std::string& word) {
  const std::string given = word.empty() ? "''" : word;
  const CLI::App& command = *used(program).back();
  const std::vector<const CLI::App*> verbs = verbs_of(command);
  if (verbs.empty()) {
    return {ExitCode::usage, given, fmt::format("is too much for {}", full_name(command)),
            "leave it out"};
  }
  std::vector<std::string> known;
  for (const CLI::App* verb : verbs) known.push_back(verb->get_name());
  const auto* described = dynamic_cast<const Command*>(&command);
  const std::string other = described == nullptr || described->unknown_verb_fix.empty()
                                ? see_help(command, "them")
                                : described->unknown_verb_fix;
  return {ExitCode::usage, given, fmt::format("is no verb of {}", full_name(command)),
          near(given, known).value_or(other)};
}

Error unexpected(const CLI::App& program) {
  std::vector<std::string> extras = program.remaining(true);
  std::erase(extras, "--");
  const auto flag = std::ranges::find_if(extras, is_flag);
  if (flag != extras.end()) return unknown_flag(program, flag->substr(0, flag->find('=')));
  return unknown_word(program, extras.empty() ? "--" : extras.front());
}

}  // namespace

Error command_line_error(const CLI::App& program, const CLI::ParseError& fault) {
  const std::string text = fault.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&fault) != nullptr) return unexpected(program);
  const std::size_t colon = text.find(": ");
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&fault) != nullptr && colon != std::string::npos) {
    const std::string name = option_named(program, text.substr(0, colon));
    // CLI11 tells the counts by its text alone: "X: At Most 1 required but received 2".
    constexpr std::string_view kReceived = "received ";
    const std::size_t received = text.rfind(kReceived);
    if (text.find("At Most 1 ") != std::string::npos && received != std::string::npos) {
      const std::string count = text.substr(received + kReceived.size());
      return {
          ExitCode::usage, name,
          count == "2" ? std::string("is given twice") : fmt::format("is given {} times", count),
          "give it once"};
    }
    if (text.ends_with(" missing")) return {ExitCode::usage, name, "needs a value"};
  }
  constexpr std::string_view kRequired = " is required";
  if (dynamic_cast<const CLI::RequiredError*>(&fault) != nullptr && text.ends_with(kRequired)) {
    return {ExitCode::usage, option_named(program, text.substr(0, text.size() - kRequired.size())),
            "is missing", fmt::format("write {}", usage(*used(program).back()))};
  }
  return {ExitCode::usage, "", text, see_help(*used(program).back(), "the flags")};
}

void refuse_empty_values(const CLI::App& program) {
  for (const CLI::App* command : used(program)) {
    for (const CLI::Option* option : command->get_options()) {
      // The value of a switch is made up by CLI11.
      if (option->count() == 0 || !needs_value(*option)) continue;
      if (std::ranges::any_of(option->results(), &std::string::empty))
        throw Error(ExitCode::usage, shown_name(*option), "is empty");
    }
  }
}

}  // namespace tessera::cli
