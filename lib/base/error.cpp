// SPDX-License-Identifier: Apache-2.0
#include "lib/base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace tessera {

namespace {

// A quoted file may hold anything; a message stays one line.
std::string one_line(std::string_view words) {
  std::string text(words);
  std::ranges::replace_if(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::string put_together(std::string_view where, std::string_view problem, std::string_view fix) {
  std::string text;
  if (!where.empty()) text += fmt::format("{}: ", where);
  text += problem;
  if (!fix.empty()) text += fmt::format("; {}", fix);
  return one_line(text);
}

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

}  // namespace

Error::Error(ExitCode code, std::string_view where, std::string_view problem, std::string_view fix)
    : std::runtime_error(put_together(where, problem, fix)),
      code_(code),
      where_(one_line(where)),
      problem_(one_line(problem)),
      fix_(one_line(fix)) {}

std::string Error::without_where() const {
  return put_together({}, problem_, fix_);
}

namespace {

// A character of a name that goes on: '_', '-' and '.' begin its next part.
bool is_word(char c) {
  return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z');
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::optional<std::string> did_you_mean(std::string_view given,
                                        std::span<const std::string_view> known) {
  if (known.empty()) return std::nullopt;
  for (const std::string_view name : known) {
    if (name.size() == given.size() && edit_distance(given, name) == 0)
      return fmt::format("did you mean {}?", name);
  }
  // "h100" means "h100_80gb" or "h100_pcie", however near h200 is; "--seq_len" can be "--seq_lens".
  std::vector<std::string_view> longer;
  for (const std::string_view name : known) {
    if (given.size() > 1 && name.size() > given.size() &&
        (!is_word(name[given.size()]) || name.size() == given.size() + 1) &&
        edit_distance(given, name.substr(0, given.size())) == 0)
      longer.push_back(name);
  }
  constexpr std::size_t kFew = 6;
  if (!longer.empty() && longer.size() <= kFew)
    return fmt::format("did you mean {}?", fmt::join(longer, " or "));
  const auto nearest = std::ranges::min_element(
      known, {}, [&](std::string_view name) { return edit_distance(given, name); });
  const auto allowed = std::max<std::size_t>(1, std::max(given.size(), nearest->size()) / 3);
  if (given.size() > 1 && edit_distance(given, *nearest) <= static_cast<int>(allowed)) {
    return fmt::format("did you mean {}?", *nearest);
  }
  return std::nullopt;
}

std::optional<std::string> did_you_mean(std::string_view given,
                                        const std::vector<std::string>& known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  return did_you_mean(given, std::span<const std::string_view>(views));
}

std::string suggestion(std::string_view given, std::span<const std::string_view> known) {
  if (known.empty()) return {};
  if (const auto meant = did_you_mean(given, known)) return *meant;
  constexpr std::size_t kListed = 24;
  if (known.size() > kListed) {
    return fmt::format("one of {}, ... ({} in all)", fmt::join(known.first(kListed), ", "),
                       known.size());
  }
  return fmt::format("one of {}", fmt::join(known, ", "));
}

std::string suggestion(std::string_view given, const std::vector<std::string>& known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  return suggestion(given, std::span<const std::string_view>(views));
}

}  // namespace tessera
