// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/constraint_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/error.h"

namespace tessera::sweep {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Length of the number that begins `rest`: digits, '.', '^', an exponent with its sign.
std::size_t number_length(std::string_view rest) {
  std::size_t length = 0;
  while (length < rest.size()) {
    const char c = rest[length];
    const bool sign_of_exponent = (c == '-' || c == '+') && length > 0 &&
                                  (rest[length - 1] == 'e' || rest[length - 1] == 'E');
    if (!is_digit(c) && !is_word_start(c) && c != '.' && c != '^' && !sign_of_exponent) break;
    ++length;
  }
  return length;
}

}  // namespace

void fail(const std::string& where, std::size_t column, std::string_view what,
          std::string_view fix) {
  throw Error(ExitCode::input, where, fmt::format("column {} of the expression: {}", column, what),
              fix);
}

std::vector<Token> tokens_of(const std::string& text, const std::string& where) {
  constexpr std::string_view kSymbols[] = {"==", "!=", "<=", ">=", "//", "<", ">", "+", "-",
                                           "*",  "/",  "%",  "(",  ")",  "[", "]", ","};
  std::vector<Token> tokens;
  std::size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    const std::string_view rest = std::string_view(text).substr(at);
    if (c == ' ' || c == '\t' || c == '\n') {
      ++at;
      continue;
    }
    Token token{.kind = Token::Kind::symbol, .text = {}, .column = at + 1};
    if (is_digit(c)) {
      token.kind = Token::Kind::number;
      token.text = rest.substr(0, number_length(rest));
      at += token.text.size();
    } else if (is_word_start(c)) {
      token.kind = Token::Kind::word;
      while (at < text.size() && (is_word_start(text[at]) || is_digit(text[at]) || text[at] == '.'))
        token.text += text[at++];
    } else if (c == '\'' || c == '"') {
      token.kind = Token::Kind::text;
      const std::size_t close = text.find(c, at + 1);
      if (close == std::string::npos) fail(where, at + 1, "this quote is not closed");
      token.text = text.substr(at + 1, close - at - 1);
      at = close + 1;
    } else {
      const auto* symbol = std::ranges::find_if(
          kSymbols, [&](std::string_view candidate) { return rest.starts_with(candidate); });
      if (symbol == std::end(kSymbols)) {
        fail(where, at + 1, fmt::format("'{}' does not belong here", c),
             c == '=' ? "comparison is ==" : "");
      }
      token.text = *symbol;
      at += symbol->size();
    }
    tokens.push_back(std::move(token));
  }
  tokens.push_back({.kind = Token::Kind::end, .text = {}, .column = text.size() + 1});
  return tokens;
}

std::string shown(const Token& token) {
  return token.kind == Token::Kind::end ? "the expression's end" : fmt::format("'{}'", token.text);
}

}  // namespace tessera::sweep
