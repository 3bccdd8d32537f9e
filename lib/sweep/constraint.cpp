// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/sweep/axes.h"

namespace tessera::sweep {

namespace {

struct Token {
  enum class Kind : std::uint8_t { end, number, text, word, symbol };
  Kind kind = Kind::end;
  std::string text;  // of a text without its quotes
  std::size_t column = 1;
};

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

// Throws Error(input) at `where`, naming the column of the expression.
[[noreturn]] void fail(const std::string& where, std::size_t column, std::string_view what,
                       std::string_view fix = {}) {
  throw Error(ExitCode::input, where, fmt::format("column {} of the expression: {}", column, what),
              fix);
}

// Splits an expression: "seq_len >= 2^14" is a word, a symbol, a number and the end.
// The last token is of kind end. Error(input) for what is no token.
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

// For messages: "'>='", "the expression's end".
std::string shown(const Token& token) {
  return token.kind == Token::Kind::end ? "the expression's end" : fmt::format("'{}'", token.text);
}

enum class Type : std::uint8_t { none, number, text, boolean };

constexpr std::string_view type_name(Type type) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "a number", "text", "true or false"};
  return kNames[static_cast<std::size_t>(type)];
}

// Names that are computed from a point. All other names are axes.
constexpr std::string_view kDerived[] = {"params", "tokens", "nodes", "device_batch", "accum"};

}  // namespace

// `op` is "value", "name", "list", "min", "max", "negative" or the operator as written.
struct Expression::Node {
  std::string op;
  std::size_t column = 1;
  Type type = Type::none;
  Operand value;     // of "value"
  std::string name;  // of "name"
  std::vector<Node> parts;
};

namespace {

using Node = Expression::Node;

// A recursive descent with one member for each level of precedence, the loosest first: either (or),
// both (and), negated (not), comparison, sum, product, sign, primary. Each checks the types of its
// parts.
class Parser {
 public:
  Parser(const std::string& text, const std::string& where)
      : where_(where), tokens_(tokens_of(text, where)) {}

  // Returns the tree of the whole text. Error(input) if something follows it or it is not true or
  // false.
  Node whole() {
    Node node = either();
    if (now().kind != Token::Kind::end)
      fail(where_, now().column, fmt::format("{} does not belong here", shown(now())));
    want(node, Type::boolean, "the expression");
    return node;
  }

 private:
  const Token& now() const { return tokens_[at_]; }

  // Passes over the token if it is this symbol or word.
  bool take(std::string_view text) {
    const bool hit = now().text == text &&
                     (now().kind == Token::Kind::symbol || now().kind == Token::Kind::word);
    if (hit) ++at_;
    return hit;
  }

  void expect(std::string_view text) {
    if (!take(text))
      fail(where_, now().column, fmt::format("{} where '{}' belongs", shown(now()), text));
  }

  void want(const Node& node, Type type, std::string_view what) const {
    if (node.type != type) {
      fail(where_, node.column,
           fmt::format("{} must be {}, not {}", what, type_name(type), type_name(node.type)));
    }
  }

  // Left-associative chain of `next` joined by one of `operators`.
  Node chain(std::initializer_list<std::string_view> operators, Type type, Node (Parser::*next)()) {
    Node left = (this->*next)();
    while (true) {
      const Token token = now();
      const auto* op = std::ranges::find_if(operators, [&](std::string_view o) { return take(o); });
      if (op == operators.end()) return left;
      Node right = (this->*next)();
      const std::string side = fmt::format("each side of '{}'", *op);
      want(left, type, side);
      want(right, type, side);
      left =
          Node{std::string(*op), token.column, type, {}, {}, {std::move(left), std::move(right)}};
    }
  }

  Node either() { return chain({"or"}, Type::boolean, &Parser::both); }
  Node both() { return chain({"and"}, Type::boolean, &Parser::negated); }
  Node sum() { return chain({"+", "-"}, Type::number, &Parser::product); }
  Node product() { return chain({"*", "//", "/", "%"}, Type::number, &Parser::sign); }

  // The deepest way round is through brackets, not and -, and each of them passes here.
  struct Level {
    explicit Level(Parser& parser) : parser_(parser) {
      constexpr int kDeepest = 64;
      if (++parser_.depth_ > kDeepest)
        fail(parser_.where_, parser_.now().column, "is nested too deeply");
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.depth_; }
    Parser& parser_;
  };

  Node negated() {
    const Token token = now();
    if (!take("not")) return comparison();
    const Level level(*this);
    Node part = negated();
    want(part, Type::boolean, "what 'not' negates");
    return Node{"not", token.column, Type::boolean, {}, {}, {std::move(part)}};
  }

  // Reads at most one comparison between two sums: a < b < c is refused.
  Node comparison() {
    Node left = sum();
    const Token token = now();
    const bool negative = token.text == "not" && tokens_[at_ + 1].text == "in";
    if (negative) ++at_;
    if (take("in")) return membership(std::move(left), token.column, negative);
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!take(op)) continue;
      Node right = sum();
      match(left, right, op, token.column);
      return Node{std::string(op),
                  token.column,
                  Type::boolean,
                  {},
                  {},
                  {std::move(left), std::move(right)}};
    }
    return left;
  }

  // Reads "['7b', '13b']" behind `in`. The parts are the left side, then the items.
  Node membership(Node left, std::size_t column, bool negative) {
    expect("[");
    Node node{negative ? "not in" : "in", column, Type::boolean, {}, {}, {}};
    std::vector<Node> items;
    do {
      items.push_back(sum());
      match(left, items.back(), "==", items.back().column);
      if (items.back().type == Type::none) fail(where_, items.back().column, "none is no value");
    } while (take(","));
    expect("]");
    node.parts.push_back(std::move(left));
    for (Node& item : items) node.parts.push_back(std::move(item));
    return node;
  }

  // Both sides of a comparison must be able to be equal.
  void match(Node& left, Node& right, std::string_view op, std::size_t column) const {
    const bool equality = op == "==" || op == "!=";
    if (left.type == Type::none || right.type == Type::none) {
      if (!equality) fail(where_, column, "none has no order", "ask with == none or != none");
      return;
    }
    if (left.type != right.type) {
      fail(where_, column,
           fmt::format("{} is compared with {}", type_name(left.type), type_name(right.type)));
    }
    if (!equality && left.type != Type::number)
      fail(where_, column, fmt::format("{} has no order", type_name(left.type)));
    spell_as_axis(left, right);
    spell_as_axis(right, left);
  }

  // precision == 'bf16' means amp_bf16, and a misspelt literal would silently never match.
  void spell_as_axis(const Node& named, Node& literal) const {
    if (named.op != "name" || literal.op != "value" || literal.type != Type::text) return;
    if (!axis_type(named.name)) return;
    Value value;
    value.kind = Value::Kind::scalar;
    value.text = std::get<std::string>(literal.value);
    value.where = where_ + fmt::format(": column {} of the expression", literal.column);
    literal.value = std::get<std::string>(parse_setting(named.name, value).value);
  }

  Node sign() {
    const Token token = now();
    if (!take("-")) return primary();
    const Level level(*this);
    Node part = sign();
    want(part, Type::number, "what '-' negates");
    return Node{"negative", token.column, Type::number, {}, {}, {std::move(part)}};
  }

  // Reads an expression in brackets, a literal, min or max, or a name.
  Node primary() {
    const Token token = now();
    if (take("(")) {
      const Level level(*this);
      Node node = either();
      expect(")");
      return node;
    }
    if (token.kind == Token::Kind::end || token.kind == Token::Kind::symbol)
      fail(where_, token.column, fmt::format("{} where a value belongs", shown(token)));
    ++at_;
    const auto value = [&](Type type, Operand operand) {
      return Node{"value", token.column, type, std::move(operand), {}, {}};
    };
    if (token.kind == Token::Kind::text) return value(Type::text, token.text);
    if (token.kind == Token::Kind::number) {
      const auto number = parse_number(token.text);
      if (!number) fail(where_, token.column, fmt::format("'{}' is not a number", token.text));
      return value(Type::number, *number);
    }
    if (token.text == "true" || token.text == "false")
      return value(Type::boolean, token.text == "true");
    if (token.text == "none") return value(Type::none, {});
    if (token.text == "min" || token.text == "max") return extreme(token);
    return name(token);
  }

  // Reads "(seq_len, 4096)" behind min or max.
  Node extreme(const Token& token) {
    const Level level(*this);
    Node node{token.text, token.column, Type::number, {}, {}, {}};
    expect("(");
    do {
      node.parts.push_back(sum());
      want(node.parts.back(), Type::number, fmt::format("each value of {}", token.text));
    } while (take(","));
    expect(")");
    return node;
  }

  // Reads an axis or a derived name, which decides the type. `batch` is a rule without a value, so
  // it is refused.
  Node name(const Token& token) const {
    Node node{"name", token.column, Type::number, {}, token.text, {}};
    if (std::ranges::find(kDerived, token.text) != std::end(kDerived)) return node;
    const std::optional<AxisType> type = axis_type(token.text);
    if (!type || *type == AxisType::batch) {
      std::vector<std::string> known = axis_names();
      std::erase(known, "batch");
      known.insert(known.end(), std::begin(kDerived), std::end(kDerived));
      fail(where_, token.column, fmt::format("unknown name '{}'", token.text),
           suggestion(token.text, known));
    }
    if (*type == AxisType::text) node.type = Type::text;
    if (*type == AxisType::boolean) node.type = Type::boolean;
    return node;
  }

  std::string where_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// Computes a parsed expression for one point. Arithmetic with what is absent is absent.
struct Evaluator {
  const Lookup& lookup;
  const std::string& where;

  bool truth(const Node& node) const {
    const Operand value = operand(node);
    return std::holds_alternative<bool>(value) && std::get<bool>(value);
  }

  Operand operand(const Node& node) const {
    if (node.op == "value") return node.value;
    if (node.op == "name") return lookup(node.name);
    if (node.op == "or") return truth(node.parts[0]) || truth(node.parts[1]);
    if (node.op == "and") return truth(node.parts[0]) && truth(node.parts[1]);
    if (node.op == "not") return !truth(node.parts[0]);
    if (node.type == Type::boolean) return compared(node);
    return number(node);
  }

  bool compared(const Node& node) const {
    const Operand left = operand(node.parts[0]);
    const bool absent = std::holds_alternative<std::monostate>(left);
    if (node.op == "in" || node.op == "not in") {
      if (absent) return false;
      const bool inside = std::any_of(node.parts.begin() + 1, node.parts.end(),
                                      [&](const Node& item) { return operand(item) == left; });
      return inside == (node.op == "in");
    }
    const Operand right = operand(node.parts[1]);
    const bool either_absent = absent || std::holds_alternative<std::monostate>(right);
    // Only `== none` and `!= none` can hold of what is absent.
    const bool asks_for_absence =
        node.parts[0].type == Type::none || node.parts[1].type == Type::none;
    if (either_absent && !asks_for_absence) return false;
    if (node.op == "==") return left == right;
    if (node.op == "!=") return left != right;
    const double a = std::get<double>(left);
    const double b = std::get<double>(right);
    if (node.op == "<") return a < b;
    if (node.op == "<=") return a <= b;
    if (node.op == ">") return a > b;
    return a >= b;
  }

  Operand number(const Node& node) const {
    std::vector<double> values;
    for (const Node& part : node.parts) {
      const Operand value = operand(part);
      if (!std::holds_alternative<double>(value)) return std::monostate{};
      values.push_back(std::get<double>(value));
    }
    if (node.op == "min") return std::ranges::min(values);
    if (node.op == "max") return std::ranges::max(values);
    if (node.op == "negative") return -values[0];
    if (node.op == "+") return values[0] + values[1];
    if (node.op == "-") return values[0] - values[1];
    if (node.op == "*") return values[0] * values[1];
    if (values[1] == 0) fail(where, node.column, "division by zero");
    if (node.op == "/") return values[0] / values[1];
    // The quotient of // is rounded down, so % has the sign of its divisor.
    const double quotient = std::floor(values[0] / values[1]);
    return node.op == "//" ? quotient : values[0] - quotient * values[1];
  }
};

}  // namespace

Expression Expression::parse(const std::string& text, const std::string& where) {
  constexpr std::size_t kLongest = 4096;
  if (text.size() > kLongest)
    throw Error(ExitCode::input, where, fmt::format("the expression is longer than {}", kLongest));
  Expression expression;
  expression.text_ = text;
  expression.where_ = where;
  expression.root_ = std::make_shared<const Node>(Parser(text, where).whole());
  return expression;
}

bool Expression::holds(const Lookup& lookup) const {
  return Evaluator{lookup, where_}.truth(*root_);
}

}  // namespace tessera::sweep
