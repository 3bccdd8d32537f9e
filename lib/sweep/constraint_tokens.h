// SPDX-License-Identifier: Apache-2.0
// The words of a constraint. Used by constraint.cpp only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::sweep {

struct Token {
  enum class Kind : std::uint8_t { end, number, text, word, symbol };
  Kind kind = Kind::end;
  std::string text;  // of a text without its quotes
  std::size_t column = 1;
};

// Error(input) at `where`, which names the column of the expression.
[[noreturn]] void fail(const std::string& where, std::size_t column, std::string_view what,
                       std::string_view fix = {});

// The last one is of kind end. Error(input) for what is no token.
std::vector<Token> tokens_of(const std::string& text, const std::string& where);

// For messages: "'>='", "the expression's end".
std::string shown(const Token& token);

}  // namespace tessera::sweep
