// SPDX-License-Identifier: Apache-2.0
// What a program prints either reaches its reader, or is missed aloud.
#include <fmt/format.h>

#include "lib/base/process.h"
#include "tests/apps/end_to_end/end_to_end.h"

using namespace tessera;
using test::EndToEnd;

namespace {

// With stdout on a full disk.
CommandResult unprinted(const EndToEnd& e2e, const std::string& program,
                        const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh"};
  const std::vector<std::string> command = e2e.command(program, arguments);
  words.insert(words.end(), command.begin(), command.end());
  return run_command(words);
}

}  // namespace

TEST_CASE("an answer that cannot be printed is a fault, not silence") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1]", 12);
  struct Asked {
    std::string program;
    std::vector<std::string> arguments;
    int code = 6;
  };
  const Asked all[] = {
      {"submit", {"--help"}},
      {"submit", {"--version"}},
      {"submit", {"--sweep", "sweep.yaml"}},
      {"submit", {"--sweep", "sweep.yaml", "--json"}},
      {"submit", {"--man"}},  // longer than a buffer
      {"collect", {"--help"}},
      {"collect", {"--version"}},
      {"trainer", {"--help"}, 18},
      {"trainer", {"--version"}, 18},
      {"trainer", {"--capabilities"}, 18},
      {"trainer", {"--selftest", "--parts", "bits"}, 18},
  };
  for (const Asked& asked : all) {
    CAPTURE(fmt::format("{} {}", asked.program, fmt::join(asked.arguments, " ")));
    const CommandResult result = unprinted(e2e, asked.program, asked.arguments);
    CHECK(result.exit_code == asked.code);
    CHECK(result.err.find(asked.program + ": stdout: cannot be written") != std::string::npos);
    const CommandResult printed = e2e.run(asked.program, asked.arguments);
    CHECK(printed.exit_code == 0);
    CHECK(!printed.out.empty());
  }
}

TEST_CASE("runs whose progress cannot be printed are done and collected all the same") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2]", 12);
  const CommandResult submitted = unprinted(e2e, "submit", {"--sweep", "sweep.yaml", "--RUN"});
  CHECK(submitted.exit_code == 6);
  const CommandResult collected = e2e.run("collect", {"e2e"});
  CHECK(collected.exit_code == 0);
  CHECK(collected.out.starts_with("2 rows of 2 runs"));
  CHECK(unprinted(e2e, "collect", {"e2e", "-p"}).exit_code == 6);
}
