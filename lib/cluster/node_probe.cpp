// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/node_probe.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::cluster {

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::string line = first_line(text);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

void take_trainer_answers(const CommandResult& version, const CommandResult& capabilities,
                          NodeReport& report) {
  for (const CommandResult* result : {&version, &capabilities}) {
    if (result->exit_code == 0 && !result->out.empty()) continue;
    std::string said = first_line(result->err);
    if (said.empty()) said = first_line(result->out);
    report.trainer_fault =
        fmt::format("trainer --{}: {}{}{}", result == &version ? "version" : "capabilities",
                    result->exit_code == 0 ? "it said nothing: is it another program?"
                                           : fmt::format("exit code {}", result->exit_code),
                    said.empty() ? "" : ": ", said);
    return;
  }
  report.version = first_line(version.out);
  report.capabilities = capabilities.out;
}

}  // namespace tessera::cluster
