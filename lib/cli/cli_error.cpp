#include "lib/cli/cli_error.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace tessera::cli {

namespace {

// "--where", or a positional argument as --help writes it: "RUN".
std::string shown_name(const CLI::Option& option) {
  std::string name = option.get_name();
  if (name.starts_with('-')) return name;
  const std::string type = option.get_type_name();
  // "PROJECT" of "PROJECT|DIR".
  if (!type.empty() && type != "TEXT") return type.substr(0, type.find('|'));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

// `app` and the subcommands that were used, innermost last.
std::vector<const CLI::App*> used(const CLI::App& app) {
  std::vector<const CLI::App*> apps{&app};
  for (std::size_t i = 0; i < apps.size(); ++i) {
    for (const CLI::App* command : apps[i]->get_subcommands()) apps.push_back(command);
  }
  return apps;
}

// The option that CLI11 names before the colon.
std::string option_named(const CLI::App& app, const std::string& name) {
  for (const CLI::App* each : used(app)) {
    for (const CLI::Option* option : each->get_options()) {
      if (option->get_name() == name) return shown_name(*option);
    }
  }
  return name;
}

std::vector<std::string> all_flags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::App* each : used(app)) {
    for (const CLI::Option* option : each->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
      for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
    }
  }
  return flags;
}

Error unexpected(const CLI::App& app) {
  std::vector<std::string> extras = app.remaining(true);
  if (extras.empty()) return {ExitCode::usage, "", "an argument was not expected"};
  const auto flag = std::ranges::find_if(extras, [](const auto& e) { return e.starts_with('-'); });
  const std::string given = flag == extras.end() ? extras.front() : *flag;
  if (flag == extras.end()) return {ExitCode::usage, given, "is not expected here"};
  const std::vector<std::string> flags = all_flags(app);
  const auto near = std::ranges::min_element(
      flags, {}, [&](const std::string& known) { return edit_distance(given, known); });
  const bool is_near = near != flags.end() && given.size() > 3 && edit_distance(given, *near) <= 2;
  return {ExitCode::usage, given, "is no flag",
          is_near ? fmt::format("did you mean {}?", *near) : "--help lists them"};
}

}  // namespace

Error command_line_error(const CLI::App& app, const CLI::ParseError& fault) {
  const std::string text = fault.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&fault) != nullptr) return unexpected(app);
  const std::size_t colon = text.find(": ");
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&fault) != nullptr && colon != std::string::npos) {
    const std::string name = option_named(app, text.substr(0, colon));
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
    return {ExitCode::usage, option_named(app, text.substr(0, text.size() - kRequired.size())),
            "is missing"};
  }
  return {ExitCode::usage, "", text, "--help lists the flags"};
}

void refuse_empty(const CLI::App& app, const std::string& flag) {
  for (const CLI::App* each : used(app)) {
    const CLI::Option* option = each->get_option_no_throw(flag);
    if (option == nullptr || option->count() == 0) continue;
    if (std::ranges::any_of(option->results(), &std::string::empty))
      throw Error(ExitCode::usage, shown_name(*option), "is empty");
  }
}

void refuse_empty_values(const CLI::App& app) {
  for (const CLI::App* each : used(app)) {
    for (const CLI::Option* option : each->get_options()) {
      // A flag's value is made up by CLI11.
      if (option->get_items_expected_max() > 0) refuse_empty(app, option->get_name());
    }
  }
}

}  // namespace tessera::cli
