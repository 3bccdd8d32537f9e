// SPDX-License-Identifier: Apache-2.0
// The three programs as a stranger meets them: their helps, and what they say to wrong words.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "lib/base/command.h"
#include "tests/temporary.h"

namespace tessera::test {

using Words = std::vector<std::string>;

inline const char* const kPrograms[] = {"submit", "collect", "trainer"};

inline std::string bin_folder() {
  const char* bin = std::getenv("TESSERA_BIN");
  REQUIRE(bin != nullptr);
  return std::filesystem::absolute(bin).string();
}

// In a folder of the tests, with a state folder there: both stay empty, as nothing is submitted.
inline CommandResult run_program(const std::string& program, const Words& words,
                                 const std::string& input = {}) {
  static const TemporaryFolder folder;
  Words command{"/usr/bin/env",
                "-C",
                folder.path().string(),
                "-u",
                "TESSERA_WORKSPACE",
                "-u",
                "TESSERA_SPEC",
                "TESSERA_STATE_DIR=" + (folder / "state").string(),
                bin_folder() + "/" + program};
  command.insert(command.end(), words.begin(), words.end());
  return run_command(command, {.environment = {}, .input = input});
}

inline Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The first words of the lines of a help below "HEADING:", as far as an empty line.
inline Words entries(const std::string& help, const std::string& heading) {
  Words found;
  bool inside = false;
  for (const std::string& line : lines_of(help)) {
    if (line.empty()) inside = false;
    const bool is_entry = line.size() > 2 && line.starts_with("  ") && line[2] != ' ';
    if (inside && is_entry) found.push_back(line.substr(2, line.find(' ', 2) - 2));
    if (line == heading + ":") inside = true;
  }
  return found;
}

inline std::string help_of(const std::string& program, const std::string& verb = {}) {
  const CommandResult result =
      run_program(program, verb.empty() ? Words{"--help"} : Words{verb, "--help"});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  return result.out;
}

inline Words verbs_of(const std::string& program) {
  Words verbs = entries(help_of(program), "Verbs");
  // The last line says where more is said.
  REQUIRE(verbs.size() > 1);
  verbs.pop_back();
  return verbs;
}

// The error behind "PROGRAM: ", one line, of a command line that is wrong.
inline std::string usage_fault(const std::string& program, const Words& words) {
  const CommandResult result = run_program(program, words);
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  REQUIRE(result.err.starts_with(program + ": "));
  CHECK(result.err.find('\n') == result.err.size() - 1);
  return result.err.substr(program.size() + 2, result.err.size() - program.size() - 3);
}

}  // namespace tessera::test
