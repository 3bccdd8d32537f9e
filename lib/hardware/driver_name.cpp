// SPDX-License-Identifier: Apache-2.0
#include "lib/hardware/driver_name.h"

#include <algorithm>
#include <map>
#include <regex>
#include <utility>
#include <vector>

namespace tessera::hardware {

namespace {

const std::regex& compiled(const std::string& pattern, LetterCase letter_case) {
  thread_local std::map<std::pair<std::string, LetterCase>, std::regex> known;
  const auto [place, is_new] = known.try_emplace({pattern, letter_case});
  if (is_new) {
    auto flags = std::regex::ECMAScript;
    if (letter_case == LetterCase::does_not_count) flags |= std::regex::icase;
    place->second.assign(pattern, flags);
  }
  return place->second;
}

bool holds(const std::vector<std::string>& patterns, const std::string& text,
           LetterCase letter_case) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return std::regex_search(text, compiled(pattern, letter_case));
  });
}

}  // namespace

bool is_called(const Gpu& gpu, const std::string& device_name, LetterCase letter_case) {
  return holds(gpu.match, device_name, letter_case) &&
         !holds(gpu.not_match, device_name, letter_case);
}

}  // namespace tessera::hardware
