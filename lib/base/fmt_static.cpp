// SPDX-License-Identifier: Apache-2.0
// What fmt's headers leave to its library, as a static library: Debian has only the shared one,
// which the trainer must not need on a node, and the header-only mode everywhere would triple the
// time to build. One translation unit in that mode, built without inlining, emits all that it uses;
// a use that is missing here is an undefined symbol when linking.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <locale>
#include <string>
#include <vector>

namespace tessera {

std::string use_all_of_fmt(std::FILE* stream, const std::vector<std::string>& texts,
                           double number) {
  fmt::print("{}", texts.size());
  fmt::print(stream, "{}", texts.size());
  fmt::memory_buffer buffer;
  fmt::format_to(std::back_inserter(buffer), "{:>{}} {:08x}", 1, 2, 3U);
  std::string text =
      fmt::format("{} {:.3f} {:g} {} {} {} {}", number, number, number, 1.5F, true, 'c', 1LL);
  fmt::format_to(std::back_inserter(text), "{:<10} {}", fmt::join(texts, ", "), fmt::ptr(stream));
  text += fmt::format(std::locale::classic(), "{:L} {:L}", 1.5, 1000);
  text += fmt::to_string(7) + fmt::to_string(number);
  return text;
}

}  // namespace tessera
