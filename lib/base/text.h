// SPDX-License-Identifier: Apache-2.0
// Quantities and paragraphs as people read them, the same in every program.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// "1m 05s", "2h 03m"; "0.4s" below ten seconds.
std::string duration_text(double seconds);

std::string counted_text(std::int64_t count, std::string_view noun);

// "1 run", "3 runs", "0 runs": the noun's plural is formed with an s.
template <std::integral T>
std::string counted(T count, std::string_view noun) {
  return counted_text(static_cast<std::int64_t>(count), noun);
}

// The text's words in lines of at most `width` characters. A line break stays one, a longer word
// stays whole.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// The text wrapped at `width`: the first line begins with `first` blanks, the others with `rest`,
// at least as many. Ends with a newline.
std::string paragraph(std::string_view text, std::size_t width, std::size_t first,
                      std::size_t rest);

}  // namespace tessera
