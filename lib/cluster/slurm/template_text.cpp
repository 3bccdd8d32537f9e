// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/template_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tessera::cluster {

std::string plural(std::int64_t number, const char* what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

std::string in_comment(std::string text) {
  std::ranges::replace_if(text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return text;
}

std::string yaml_text(const std::string& text) {
  constexpr std::array<std::string_view, 9> kWords = {"null", "true", "false", "yes", "no",
                                                      "on",   "off",  "y",     "n"};
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '/';
  };
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const bool begins_well = !lower.empty() && ((lower[0] >= 'a' && lower[0] <= 'z') ||
                                              lower[0] == '/' || lower[0] == '_');
  if (begins_well && std::ranges::all_of(text, is_plain) &&
      std::ranges::find(kWords, lower) == kWords.end())
    return text;
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') quoted += '\\';
    if (byte < ' ' || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string listed(std::vector<std::string> names) {
  constexpr std::size_t kMostNames = 20;
  const std::size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
  names.resize(names.size() - more);
  return in_comment(fmt::format("{}{}", fmt::join(names, ", "),
                                more > 0 ? fmt::format(" and {} more", more) : ""));
}

std::string clock_text(std::int64_t seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  return fmt::format("{:02}:{:02}:{:02}", seconds / kHour, seconds / kMinute % kMinute,
                     seconds % kMinute);
}

}  // namespace tessera::cluster
