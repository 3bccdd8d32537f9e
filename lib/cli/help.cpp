// SPDX-License-Identifier: Apache-2.0
#include "lib/cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "lib/base/text.h"
#include "lib/base/version.h"
#include "lib/cli/describe.h"
#include "lib/cli/old_spellings.h"

namespace tessera::cli {

namespace {

constexpr std::size_t kTextColumn = 26;  // of what a flag does

// "  left   right", `right` wrapped from `column` on.
std::string row(const std::string& left, const std::string& right, std::size_t column) {
  std::string text = fmt::format("  {}", left);
  bool first = true;
  for (const std::string& line : wrapped(right, kHelpColumns - column)) {
    if (line.empty()) continue;
    const bool beside = first && text.size() + 2 <= column;
    text += beside ? std::string(column - text.size(), ' ')
                   : fmt::format("\n{}", std::string(column, ' '));
    text += line;
    first = false;
  }
  return text + "\n";
}

// "-f, --follow", "-m, --models NAME|FILE..."
std::string flag_text(const CLI::Option& option) {
  const std::string value = value_text(option);
  return fmt::format("{}{}{}", fmt::join(flag_names(option), ", "), value.empty() ? "" : " ",
                     value);
}

const Command& command_of(const CLI::App& app) {
  return dynamic_cast<const Command&>(app);
}

// ---- man(7) ----

// Text as roff takes it: no escape, no ligature of hyphens, no request at a line's start.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

// A tagged paragraph, its tag in bold.
std::string tagged(const std::string& tag, const std::string& text) {
  return fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(tag), roff(text));
}

// Flag names in bold, the value as it is written.
std::string flag_paragraph(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : flag_names(option))
    names.push_back(fmt::format("\\fB{}\\fR", roff(name)));
  const std::string value = value_text(option);
  return fmt::format(".TP\n{}{}{}\n{}\n", fmt::join(names, ", "), value.empty() ? "" : " ",
                     roff(value), roff(option.get_description()));
}

std::string paragraphs(const std::string& text) {
  std::string out;
  for (const std::string& line : wrapped(text, text.size()))
    out += line.empty() ? ".PP\n" : roff(line) + "\n";
  return out;
}

// What stands below a heading of this command: what it does, arguments and flags.
std::string man_body(const Command& command) {
  std::string page = roff(command.get_description()) + ".\n";
  if (!command.details.empty()) page += ".PP\n" + paragraphs(command.details);
  for (const CLI::Option* argument : arguments_of(command))
    page += tagged(argument_text(*argument), argument->get_description());
  return page;
}

std::string man_flags(const Command& command, const std::string& group) {
  std::string page;
  for (const CLI::Option* option : flags_of(command, group)) page += flag_paragraph(*option);
  return page;
}

std::string man_examples(const Command& command) {
  std::string page;
  for (const Example& example : command.examples)
    page += fmt::format(".TP\n{}\n{}\n", roff(example.command), roff(example.purpose));
  return page;
}

std::string man_exit_codes(const Command& command) {
  std::string page;
  for (const auto& [code, meaning] : exit_codes_of(command))
    page += tagged(std::to_string(static_cast<int>(code)), meaning);
  return page;
}

}  // namespace

std::vector<std::pair<ExitCode, std::string>> exit_codes_of(const Command& command) {
  const CLI::App* parent = command.get_parent();
  std::map<ExitCode, std::string> codes(command.exit_codes.begin(), command.exit_codes.end());
  const auto& shared = (parent == nullptr ? command : command_of(*parent)).shared_exit_codes;
  codes.insert(shared.begin(), shared.end());
  return {codes.begin(), codes.end()};
}

std::string help_text(const Command& command) {
  std::string text = fmt::format("Usage: {} [OPTIONS]\n", usage(command));
  const auto verbs = verbs_of(command);
  if (!verbs.empty()) text += fmt::format("       {} VERB [OPTIONS]\n", full_name(command));
  text += "\n" + paragraph(command.get_description() + ".", kHelpColumns, 0, 0);
  if (!command.details.empty()) text += "\n" + paragraph(command.details, kHelpColumns, 0, 0);
  if (!verbs.empty()) {
    text += "\nVerbs:\n";
    std::size_t longest = 0;
    for (const CLI::App* verb : verbs) longest = std::max(longest, verb->get_name().size());
    for (const CLI::App* verb : verbs)
      text += row(verb->get_name(), verb->get_description(), longest + 4);
    text += row(fmt::format("\"{} VERB --help\" says more.", full_name(command)), "", 0);
  }
  const auto arguments = arguments_of(command);
  if (!arguments.empty()) text += "\nArguments:\n";
  for (const CLI::Option* argument : arguments)
    text += row(argument_text(*argument), argument->get_description(), kTextColumn);
  for (const std::string& group : flag_groups(command)) {
    text += fmt::format("\n{}:\n", group);
    for (const CLI::Option* option : flags_of(command, group))
      text += row(flag_text(*option), option->get_description(), kTextColumn);
  }
  for (const Topic& topic : command.topics) {
    text += fmt::format("\n{}:\n", topic.title);
    for (const auto& [word, meaning] : topic.words) text += row(word, meaning, kTextColumn);
  }
  text += command.examples.size() == 1 ? "\nExample:\n" : "\nExamples:\n";
  for (const Example& example : command.examples)
    text += fmt::format("  {}\n{}", example.command, row("", example.purpose, 6));
  text += "\nExit codes:\n";
  for (const auto& [code, meaning] : exit_codes_of(command))
    text += row(fmt::format("{:>3}", static_cast<int>(code)), meaning, 7);
  return text;
}

std::string man_page(const Command& program) {
  std::string name = program.get_name();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string page = fmt::format(
      ".TH {} 1 \"\" \"{}\" Tessera\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", name,
      roff(version_line(program.get_name())), program.get_name(), roff(program.get_description()));
  page += fmt::format("{} [OPTIONS]\n", roff(usage(program)));
  for (const CLI::App* verb : verbs_of(program))
    page += fmt::format(".br\n{} [OPTIONS]\n", roff(usage(*verb)));
  page += fmt::format(".SH DESCRIPTION\n{}", man_body(program));
  page += ".SH OPTIONS\n";
  for (const std::string& group : flag_groups(program))
    page += fmt::format(".SS {}\n{}", roff(group), man_flags(program, group));
  for (const Topic& topic : program.topics) {
    page += fmt::format(".SS {}\n", roff(topic.title));
    for (const auto& [word, meaning] : topic.words) page += tagged(word, meaning);
  }
  if (!verbs_of(program).empty()) page += ".SH VERBS\n";
  for (const CLI::App* verb : verbs_of(program)) {
    const Command& command = command_of(*verb);
    page += fmt::format(".SS {}\n{}", roff(usage(command)), man_body(command));
    for (const std::string& group : flag_groups(command)) {
      if (group != kHelpGroup) page += man_flags(command, group);
    }
    page += ".PP\nExamples:\n" + man_examples(command);
    page += ".PP\nExit status:\n" + man_exit_codes(command);
  }
  std::string others;
  for (const OldSpelling& row : old_spellings()) {
    if (row.program == program.get_name())
      others += tagged(std::string(row.old), fmt::format("{}", row.now));
  }
  if (!others.empty()) page += ".SH OTHER SPELLINGS\nThese are taken, too:\n" + others;
  page += fmt::format(".SH EXAMPLES\n{}", man_examples(program));
  page += fmt::format(".SH EXIT STATUS\n{}", man_exit_codes(program));
  return page;
}

}  // namespace tessera::cli
