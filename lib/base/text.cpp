// SPDX-License-Identifier: Apache-2.0
#include "lib/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera {

std::string duration_text(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = std::lround(seconds);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
}

std::string counted_text(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::string line;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", start), text.size());
    const std::string_view word = text.substr(start, end - start);
    if (!line.empty() && line.size() + 1 + word.size() > width)
      lines.push_back(std::exchange(line, ""));
    if (!line.empty()) line += ' ';
    line += word;
    if (end == text.size() || text[end] == '\n') lines.push_back(std::exchange(line, ""));
    start = end + 1;
  }
  return lines;
}

std::string paragraph(std::string_view text, std::size_t width, std::size_t first,
                      std::size_t rest) {
  std::string lines;
  for (const std::string& line : wrapped(text, width - rest))
    lines += fmt::format("{:{}}{}\n", "", lines.empty() ? first : rest, line);
  return lines;
}

}  // namespace tessera
