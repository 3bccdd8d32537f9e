// SPDX-License-Identifier: Apache-2.0
#include "lib/base/cuda_architectures.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>

namespace tessera {

namespace {

struct Architecture {
  int capability = 0;
  bool is_exact = false;  // has a letter
  bool is_virtual = false;
};

Architecture parse(std::string_view text) {
  Architecture a;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), a.capability);
  if (fault != std::errc()) return {};
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  a.is_exact = !rest.empty() && rest.front() != '-';
  rest.remove_prefix(std::min(rest.find('-'), rest.size()));
  a.is_virtual = rest != "-real";
  return a;
}

}  // namespace

bool has_code_for(std::span<const std::string> architectures, int compute_capability) {
  for (const std::string& text : architectures) {
    const Architecture a = parse(text);
    if (a.capability == 0) return true;
    if (compute_capability < a.capability) continue;
    if (a.is_exact) {
      if (compute_capability == a.capability) return true;
      continue;
    }
    if (a.is_virtual || compute_capability / 10 == a.capability / 10) return true;
  }
  return false;
}

std::string architectures_text(std::span<const std::string> architectures) {
  std::map<int, bool> all;  // capability: and newer
  for (const std::string& text : architectures) {
    const Architecture a = parse(text);
    if (a.capability > 0) all[a.capability] |= a.is_virtual && !a.is_exact;
  }
  std::string text;
  for (const auto& [capability, and_newer] : all) {
    if (!text.empty()) text += ", ";
    text += compute_capability_text(capability);
    if (!and_newer) continue;
    // What is newer than this one is newer than those that follow.
    return text + " and newer";
  }
  return text;
}

std::string compute_capability_text(int compute_capability) {
  return fmt::format("{}.{}", compute_capability / 10, compute_capability % 10);
}

}  // namespace tessera
