// SPDX-License-Identifier: Apache-2.0
// A program or one of its verbs as its command line describes it: what is parsed, and what help,
// man page and completion scripts say. Nothing of it is written a second time elsewhere.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/error.h"

namespace tessera::cli {

// The group of --help and its like.
inline constexpr const char* kHelpGroup = "Help";

struct Example {
  std::string command;  // as typed
  std::string purpose;  // what it does
};

// Words that a value of a flag may hold, each with what it means.
struct Topic {
  std::string title;
  std::vector<std::pair<std::string, std::string>> words;
};

// CLI11's App with the texts that a reader of the help needs. An option's type_name says what its
// value is: "N", "FILE", "NAME|FILE", or the values themselves: "table|mosaic" (see describe.h).
class Command : public CLI::App {
 public:
  // `summary`: one sentence in the imperative, without a full stop.
  Command(const std::string& name, const std::string& summary);

  // A verb of this program. The reference holds as long as the program.
  Command& add_verb(const std::string& name, const std::string& summary);

  std::string details;        // paragraphs below the usage, "" for none; separated by empty lines
  std::vector<Topic> topics;  // behind the flags
  std::vector<Example> examples;
  std::vector<std::pair<ExitCode, std::string>> exit_codes;         // beside the shared ones
  std::vector<std::pair<ExitCode, std::string>> shared_exit_codes;  // of a program and its verbs
  std::string unknown_verb_fix;  // what to do about a word that is no verb; "": see the help
  std::function<int()> action;   // returns the exit code
};

}  // namespace tessera::cli
