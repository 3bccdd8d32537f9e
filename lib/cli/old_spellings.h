// SPDX-License-Identifier: Apache-2.0
// Spellings that programs took before, and those of llm-foundry: they go on working in silence.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace tessera::cli {

struct OldSpelling {
  std::string_view program;
  std::string_view old;  // a flag
  std::string_view now;  // the flag, or the verb
};

// All there are; help shows only the new ones.
std::span<const OldSpelling> old_spellings();

// The row of `program` whose old flag is `flag`, or nullptr.
const OldSpelling* find_old_spelling(std::string_view program, std::string_view flag);

// `words` with old spellings replaced, and a verb first: flags may stand before their verb
// ("submit --workspace W status" is "submit status --workspace W"). Values of flags stay as they
// are, and so does all behind "--". A second verb stays where it is. --version, wherever it stands,
// is all that is asked. Error(usage) for a long flag behind one dash, which CLI11 takes for a short
// one and its value.
std::vector<std::string> modern_words(const CLI::App& program,
                                      const std::vector<std::string>& words);

}  // namespace tessera::cli
