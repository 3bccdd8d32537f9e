// SPDX-License-Identifier: Apache-2.0
// Runs the real submit in an empty folder with an empty state folder.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "tests/temporary.h"

namespace tessera::test {

// Asks the trainer beside submit what it can do.
inline bool is_built_without_cuda() {
  const char* bin = std::getenv("TESSERA_BIN");
  REQUIRE(bin != nullptr);
  const CommandResult said = run_command({std::string(bin) + "/trainer", "--capabilities"});
  REQUIRE(said.exit_code == 0);
  return said.out.find("built without CUDA") != std::string::npos;
}

// A text that was wrapped, without its line breaks.
inline std::string one_line(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

class SubmitProgram {
 public:
  CommandResult run(std::vector<std::string> arguments) const {
    const char* bin = std::getenv("TESSERA_BIN");
    REQUIRE(bin != nullptr);
    std::vector<std::string> command{"/usr/bin/env", "-C", folder_.path().string(),
                                     "TESSERA_STATE_DIR=" + (folder_ / "state").string(),
                                     std::string(bin) + "/submit"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_command(command);
  }

  const std::filesystem::path& path() const { return folder_.path(); }

  // Writes a file of this name beside the program's working folder's other files.
  void write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name) << content;
    ++files_;
  }

  // One line on stderr, this exit code, and nothing written. Returns the line.
  std::string fault(const std::vector<std::string>& arguments, ExitCode code) const {
    const CommandResult result = run(arguments);
    CAPTURE(result.err);
    CAPTURE(result.out);
    CHECK(result.exit_code == static_cast<int>(code));
    CHECK(result.err.starts_with("submit: "));
    CHECK(result.err.find('\n') == result.err.size() - 1);
    CHECK(is_untouched());
    return result.err.substr(8, result.err.size() - 9);
  }

  bool is_untouched() const {
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::recursive_directory_iterator(folder_.path()))
      ++files;
    return files == files_;
  }

 private:
  TemporaryFolder folder_;
  std::size_t files_ = 0;
};

}  // namespace tessera::test
