// SPDX-License-Identifier: Apache-2.0
#include "lib/cli/command.h"

#include <memory>

namespace tessera::cli {

Command::Command(const std::string& name, const std::string& summary) : CLI::App(summary, name) {
  option_defaults()->group("Options");
  set_help_flag("-h,--help", "Print this help")->group(kHelpGroup);
  require_subcommand(0, 1);
}

Command& Command::add_verb(const std::string& name, const std::string& summary) {
  auto verb = std::make_shared<Command>(name, summary);
  add_subcommand(verb);
  return *verb;
}

}  // namespace tessera::cli
