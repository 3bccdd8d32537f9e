// SPDX-License-Identifier: Apache-2.0
// What CLI11 knows of a program's flags and verbs, asked in the words of a help.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera::cli {

// "-f" or "--follow", neither "-" nor "-1".
bool is_flag(std::string_view word);

// The verbs of a program in their order, and the one of this name or nullptr.
std::vector<const CLI::App*> verbs_of(const CLI::App& program);
const CLI::App* find_verb(const CLI::App& program, std::string_view name);

// "submit", or of a verb "submit logs".
std::string full_name(const CLI::App& command);

// The groups of a command's flags in their order, the flags of one, and the positional arguments.
std::vector<std::string> flag_groups(const CLI::App& command);
std::vector<const CLI::Option*> flags_of(const CLI::App& command, const std::string& group);
std::vector<const CLI::Option*> flags_of(const CLI::App& command);
std::vector<const CLI::Option*> arguments_of(const CLI::App& command);

// Short names first: "-f", "--follow".
std::vector<std::string> flag_names(const CLI::Option& option);

bool takes_value(const CLI::Option& option);
bool needs_value(const CLI::Option& option);  // false: it may stand alone
bool is_list(const CLI::Option& option);      // takes several

// The value as help shows it: "N", "NAME|FILE...", "[true|false]"; "" of a switch.
std::string value_text(const CLI::Option& option);

// An argument as usage shows it: "RUN", "[PROJECT|DIR...]".
std::string argument_text(const CLI::Option& argument);

// "submit logs [PROJECT] [RUN]"
std::string usage(const CLI::App& command);

// The words that a value may be, from its type_name: "table|mosaic" has two, "N|auto" has auto.
// Names in capitals, as in "N" or "NAME|FILE", stand for a value of the user's own.
std::vector<std::string> words_of_value(const CLI::Option& option);
bool takes_file(const CLI::Option& option);
bool takes_folder(const CLI::Option& option);

// "--follow", or an argument as help writes it: "RUN".
std::string shown_name(const CLI::Option& option);

}  // namespace tessera::cli
