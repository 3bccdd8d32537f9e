// SPDX-License-Identifier: Apache-2.0
#include "lib/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "lib/cli/describe.h"

namespace tessera::cli {

const char* const kShells = "bash|zsh|fish";

namespace {

using Words = std::vector<std::string>;

// Every flag of the program and of its verbs, each name once: what a name takes is the same in all.
std::vector<const CLI::Option*> all_flags(const CLI::App& program) {
  std::vector<const CLI::Option*> flags = flags_of(program);
  for (const CLI::App* verb : verbs_of(program)) {
    for (const CLI::Option* option : flags_of(*verb)) flags.push_back(option);
  }
  return flags;
}

// The names of the flags for which `holds`, as a pattern of case: "-f|--follow".
template <class Predicate>
std::string pattern(const std::vector<const CLI::Option*>& flags, Predicate holds) {
  Words names;
  for (const CLI::Option* option : flags) {
    if (!holds(*option)) continue;
    for (const std::string& name : flag_names(*option)) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  return fmt::format("{}", fmt::join(names, "|"));
}

// Returns "-f --follow --attempt": all names of the flags of a command.
std::string join_names(const CLI::App& command) {
  Words names;
  for (const CLI::Option* option : flags_of(command)) {
    for (const std::string& name : flag_names(*option)) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, " "));
}

Words verb_names(const CLI::App& program) {
  Words names;
  for (const CLI::App* verb : verbs_of(program)) names.push_back(verb->get_name());
  return names;
}

// Returns whether the value is the user's own, so that nothing can complete it.
bool is_plain(const CLI::Option& option) {
  return takes_value(option) && words_of_value(option).empty() && !takes_file(option) &&
         !takes_folder(option);
}

// ---- bash ----

// What completes a value, as commands of bash.
std::string bash_value(const CLI::Option& option) {
  std::string text;
  if (const Words words = words_of_value(option); !words.empty())
    text += fmt::format(" words='{}'", fmt::join(words, " "));
  if (takes_file(option)) text += " paths=-f";
  if (takes_folder(option)) text += " paths=-d";
  return text;
}

// Writes a function of bash. It walks the words before the cursor to find the verb and a flag whose
// value is due. Then it sets `words` and `paths` to what may follow.
std::string bash_script(const CLI::App& program) {
  const std::string& name = program.get_name();
  const auto flags = all_flags(program);
  std::string text = fmt::format(
      R"(_{0}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} verb='' flag='' words='' paths='' i word
  local -i values=0
  [[ $current != '=' ]] || current=''
  # The verb, and the flag whose value is due: values left to it, more than 1 of a list.
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${{COMP_WORDS[i]}}
    case $word in
      =) continue ;;
)",
      name);
  const auto add_case = [&](const std::string& names, std::string_view action) {
    if (!names.empty()) text += fmt::format("      {}) {} ;;\n", names, action);
  };
  // 1000 stands for the values of a list: nobody writes as many.
  add_case(pattern(flags, [](const auto& each) { return is_list(each); }),
           "flag=$word values=1000; continue");
  add_case(pattern(flags, [](const auto& each) { return takes_value(each) && !is_list(each); }),
           "flag=$word values=1; continue");
  text += "      -*) flag='' values=0; continue ;;\n    esac\n";
  text += fmt::format(
      R"(    if [[ -z $verb && $values != 1 && $values != 1000 ]]; then
      case $word in {}) verb=$word flag='' values=0; continue ;; esac
    fi
)",
      fmt::join(verb_names(program), "|"));
  // A word that begins with - is completed to a flag of the verb.
  text += R"(    ((values == 0 || --values > 0)) || flag=''
  done
  if [[ $current == -* && $values != 1 && $values != 1000 ]]; then
    case $verb in
)";
  text += fmt::format("      '') words='{}' ;;\n", join_names(program));
  for (const CLI::App* verb : verbs_of(program))
    text += fmt::format("      {}) words='{}' ;;\n", verb->get_name(), join_names(*verb));
  // Behind a flag its value is completed.
  text += "    esac\n  elif [[ -n $flag ]]; then\n    case $verb/$flag in\n";
  const auto add_values = [&](const CLI::App& command, const std::string& verb) {
    for (const CLI::Option* option : flags_of(command)) {
      const std::string value = bash_value(*option);
      if (value.empty()) continue;
      Words names;
      for (const std::string& each : flag_names(*option))
        names.push_back(fmt::format("{}/{}", verb, each));
      text += fmt::format("      {}){} ;;\n", fmt::join(names, "|"), value);
    }
  };
  add_values(program, "");
  for (const CLI::App* verb : verbs_of(program)) add_values(*verb, verb->get_name());
  // Otherwise it is an argument or the verb itself.
  text += "    esac\n  else\n    case $verb in\n";
  const auto add_arguments = [&](const CLI::App& command, const std::string& verb,
                                 const std::string& more) {
    std::string value = more;
    for (const CLI::Option* argument : arguments_of(command)) value += bash_value(*argument);
    if (!value.empty()) text += fmt::format("      {}){} ;;\n", verb, value);
  };
  add_arguments(program, "''", fmt::format(" words='{}'", fmt::join(verb_names(program), " ")));
  for (const CLI::App* verb : verbs_of(program)) add_arguments(*verb, verb->get_name(), "");
  text += fmt::format(
      R"(    esac
  fi
  mapfile -t COMPREPLY < <(
    [[ -z $words ]] || compgen -W "$words" -- "$current"
    [[ -z $paths ]] || compgen $paths -- "$current"
  )
  [[ -z $paths ]] || compopt -o filenames 2>/dev/null
}}
complete -F _{0} {0}
)",
      name);
  return text;
}

// ---- zsh ----

// In single quotes: no quote ends it, and what _arguments reads in a description is escaped.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

// Returns "FILE:_files": the name of the value, and how it is completed.
std::string zsh_value(const CLI::Option& option) {
  Words actions;
  if (const Words words = words_of_value(option); !words.empty())
    actions.push_back(fmt::format("({})", fmt::join(words, " ")));
  if (takes_file(option)) actions.emplace_back("_files");
  if (takes_folder(option)) actions.emplace_back("_files -/");
  return fmt::format("{}:{}", zsh_text(option.get_type_name()),
                     actions.empty() ? " " : actions.front());
}

// What _arguments is told of a command: a specification for each name of a flag.
Words zsh_flags(const CLI::App& command) {
  Words specifications;
  for (const CLI::Option* option : flags_of(command)) {
    std::string value;
    if (takes_value(*option))
      value = fmt::format("{}{}", needs_value(*option) ? ":" : "::", zsh_value(*option));
    for (const std::string& name : flag_names(*option)) {
      specifications.push_back(fmt::format("{}{}[{}]{}", is_list(*option) ? "*" : "", name,
                                           zsh_text(option->get_description()), value));
    }
  }
  return specifications;
}

Words zsh_flags_and_arguments(const CLI::App& command) {
  Words specifications = zsh_flags(command);
  for (const CLI::Option* argument : arguments_of(command))
    specifications.push_back(
        fmt::format("{}:{}", is_list(*argument) ? "*" : "1", zsh_value(*argument)));
  return specifications;
}

// Returns a call of _arguments with each specification in single quotes.
std::string zsh_call(const char* options, const Words& specifications) {
  return fmt::format("  _arguments {} \\\n    '{}'\n", options,
                     fmt::join(specifications, "' \\\n    '"));
}

std::string zsh_script(const CLI::App& program) {
  const std::string& name = program.get_name();
  std::string text = fmt::format("#compdef {0}\n\n_{0}() {{\n", name);
  text += "  local curcontext=$curcontext state line\n  local -a verbs\n  verbs=(\n";
  for (const CLI::App* verb : verbs_of(program))
    text += fmt::format("    '{}:{}'\n", verb->get_name(), zsh_text(verb->get_description()));
  text += "  )\n";
  // _arguments sets $state: `verb` for the first word, `rest` for those behind it.
  Words specifications = zsh_flags(program);
  specifications.insert(specifications.end(), {"1: :->verb", "*:: :->rest"});
  text += zsh_call("-C -S", specifications);
  bool takes_folders = false;
  for (const CLI::Option* argument : arguments_of(program))
    takes_folders = takes_folders || takes_folder(*argument);
  text += fmt::format(
      "  case $state in\n  verb) _describe verb verbs{} ;;\n  rest)\n    case $line[1] in\n",
      takes_folders ? "; _files -/" : "");
  for (const CLI::App* verb : verbs_of(program)) {
    text += fmt::format("    {})\n{}    ;;\n", verb->get_name(),
                        zsh_call("-S", zsh_flags_and_arguments(*verb)));
  }
  // Sourced, or a file of $fpath.
  return text + fmt::format(R"(    esac
    ;;
  esac
}}

if [[ $funcstack[1] == _{0} ]]; then
  _{0} "$@"
else
  compdef _{0} {0}
fi
)",
                            name);
}

// ---- fish ----

// Escapes a text for single quotes.
std::string fish_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// Returns the options of `complete` for a value. -f offers no files.
std::string fish_value(const CLI::Option& option) {
  const Words words = words_of_value(option);
  std::string text;
  if (!words.empty()) text += fmt::format(" -a '{}'", fmt::join(words, " "));
  if (takes_folder(option)) text += " -a '(__fish_complete_directories)'";
  return text + (takes_file(option) ? " -F" : " -f");
}

// Writes a line `complete` for each verb, flag and argument, with the condition under which it is
// offered.
std::string fish_script(const CLI::App& program) {
  const std::string& name = program.get_name();
  std::string text = fmt::format("complete -c {} -f\n", name);
  const auto add = [&](const CLI::App& command, const std::string& condition) {
    const std::string start = fmt::format(
        "complete -c {}{}", name, condition.empty() ? "" : fmt::format(" -n '{}'", condition));
    for (const CLI::Option* option : flags_of(command)) {
      text += start;
      for (const std::string& short_name : option->get_snames()) text += " -s " + short_name;
      for (const std::string& long_name : option->get_lnames()) text += " -l " + long_name;
      if (needs_value(*option)) text += " -r";
      if (takes_value(*option)) text += fish_value(*option);
      text += fmt::format(" -d '{}'\n", fish_text(option->get_description()));
    }
    for (const CLI::Option* argument : arguments_of(command)) {
      if (!is_plain(*argument)) text += fmt::format("{}{}\n", start, fish_value(*argument));
    }
  };
  const auto verbs = verbs_of(program);
  const std::string seen = "__fish_seen_subcommand_from";
  const std::string none = fmt::format("not {} {}", seen, fmt::join(verb_names(program), " "));
  for (const CLI::App* verb : verbs) {
    text += fmt::format("complete -c {} -n '{}' -a {} -d '{}'\n", name, none, verb->get_name(),
                        fish_text(verb->get_description()));
  }
  add(program, none);
  for (const CLI::App* verb : verbs) add(*verb, fmt::format("{} {}", seen, verb->get_name()));
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& program, std::string_view shell) {
  if (shell == "bash") return bash_script(program);
  if (shell == "zsh") return zsh_script(program);
  if (shell == "fish") return fish_script(program);
  throw Error(ExitCode::usage, full_name(program) + " completion",
              fmt::format("'{}' is no shell that it knows", shell), "write bash, zsh or fish");
}

}  // namespace tessera::cli
