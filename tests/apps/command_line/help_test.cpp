// SPDX-License-Identifier: Apache-2.0
// Each help and manual page: fits a terminal, ends with an example and the exit codes, and speaks
// of its own verb alone.
#include <algorithm>
#include <fstream>
#include <regex>
#include <set>

#include "tests/apps/command_line/programs.h"

using namespace tessera;
using test::help_of;
using test::lines_of;
using test::Words;

namespace {

struct Help {
  std::string program;
  std::string verb;  // "": the program's own
  std::string text;
};

const std::vector<Help>& all_helps() {
  static const std::vector<Help> helps = [] {
    std::vector<Help> all;
    for (const char* program : test::kPrograms) {
      all.push_back({program, "", help_of(program)});
      for (const std::string& verb : test::verbs_of(program))
        all.push_back({program, verb, help_of(program, verb)});
    }
    return all;
  }();
  return helps;
}

// Codes and meanings of a help.
std::set<int> exit_codes(const std::string& help) {
  std::set<int> codes;
  const std::size_t at = help.find("\nExit codes:\n");
  REQUIRE(at != std::string::npos);
  const std::regex row("\\n +(\\d+)  [^ ]");
  for (std::sregex_iterator each(help.begin() + static_cast<std::ptrdiff_t>(at), help.end(), row);
       each != std::sregex_iterator(); ++each)
    codes.insert(std::stoi((*each)[1]));
  return codes;
}

// The codes of a section of docs/exit-codes.md.
std::set<int> documented(const std::string& heading) {
  std::ifstream file("docs/exit-codes.md");
  std::set<int> codes;
  bool inside = false;
  const std::regex row("^\\| (\\d+) \\|.*");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line.find(heading) != std::string::npos;
    std::smatch found;
    if (inside && std::regex_match(line, found, row)) codes.insert(std::stoi(found[1]));
  }
  return codes;
}

}  // namespace

TEST_CASE("no line of a help is longer than 80 columns or ends with a space") {
  for (const Help& help : all_helps()) {
    CAPTURE(help.program + " " + help.verb);
    for (const std::string& line : lines_of(help.text)) {
      CAPTURE(line);
      CHECK(line.size() <= 80);
      CHECK(!line.ends_with(' '));
    }
  }
}

TEST_CASE("a help begins with the usage and ends with an example and exit codes") {
  for (const Help& help : all_helps()) {
    const std::string command = help.program + (help.verb.empty() ? "" : " " + help.verb);
    CAPTURE(command);
    CHECK(help.text.starts_with("Usage: " + command));
    const std::size_t example = help.text.find("\nExample");
    REQUIRE(example != std::string::npos);
    CHECK(help.text.find("\nExit codes:\n") > example);
    // Each example is a command of this program.
    const Words typed = test::entries(help.text, "Example");
    for (const std::string& word : typed) CHECK((word == help.program || word == "source"));
    const std::set<int> codes = exit_codes(help.text);
    CHECK(codes.contains(0));
    CHECK(codes.contains(2));
  }
}

TEST_CASE("the exit codes of helps and docs/exit-codes.md are the same") {
  std::set<int> said[2];
  for (const Help& help : all_helps()) said[help.program == "trainer"].merge(exit_codes(help.text));
  CHECK(said[0] == documented("submit"));
  std::set<int> trainers = documented("trainer");
  // 126 and 127 are a job script's, not the program's.
  for (const int code : {126, 127}) trainers.erase(code);
  trainers.insert(130);  // in the row of 128 + n
  CHECK(said[1] == trainers);
}

TEST_CASE("the help of a verb lists its flags and no other") {
  const auto flags = [](const std::string& help) {
    std::set<std::string> found;
    const std::regex flag("\\n  (-\\w, )?(--[\\w-]+)");
    for (std::sregex_iterator each(help.begin(), help.end(), flag); each != std::sregex_iterator();
         ++each)
      found.insert((*each)[2]);
    return found;
  };
  using Flags = std::set<std::string>;
  CHECK(flags(help_of("submit", "logs")) ==
        Flags{"--follow", "--attempt", "--project", "--workspace", "--help"});
  CHECK(flags(help_of("submit", "status")) ==
        Flags{"--all", "--watch", "--offline", "--project", "--workspace", "--help"});
  CHECK(flags(help_of("submit", "completion")) == Flags{"--help"});
  CHECK(flags(help_of("trainer", "selftest")) ==
        Flags{"--parts", "--gpu", "--small", "--from", "--threads", "--help"});
  CHECK(flags(help_of("trainer")) ==
        Flags{"--spec", "--nproc", "--profile", "--help", "--version", "--man", "--completion"});
  const Flags plan = flags(help_of("submit"));
  for (const char* of_a_verb : {"--follow", "--watch", "--patience", "--partition"})
    CHECK(!plan.contains(of_a_verb));
}

TEST_CASE("a manual page is roff without a fault, and holds every flag and verb of the helps") {
  for (const char* program : test::kPrograms) {
    CAPTURE(program);
    const CommandResult page = test::run_program(program, {"--man"});
    CHECK(page.exit_code == 0);
    const CommandResult shown = run_command({"groff", "-man", "-Tutf8", "-ww", "-P-c"},
                                            {.environment = {}, .input = page.out});
    CHECK(shown.exit_code == 0);
    CHECK(shown.err.empty());
    // Without the overstrikes of bold type.
    const std::string text = std::regex_replace(shown.out, std::regex(".\b"), "");
    for (const char* heading : {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"})
      CHECK(text.find(std::string("\n") + heading + "\n") != std::string::npos);
    for (const Help& help : all_helps()) {
      if (help.program != program) continue;
      CHECK(text.find(help.program + (help.verb.empty() ? "" : " " + help.verb)) !=
            std::string::npos);
      const std::regex flag("\\n  (-[^ ]+)");
      for (std::sregex_iterator each(help.text.begin(), help.text.end(), flag);
           each != std::sregex_iterator(); ++each) {
        CAPTURE((*each)[1].str());
        CHECK(text.find((*each)[1].str().substr(0, (*each)[1].str().find(','))) !=
              std::string::npos);
      }
    }
  }
}
