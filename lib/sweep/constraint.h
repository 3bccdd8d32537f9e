// SPDX-License-Identifier: Apache-2.0
// The constraint language of sweeps: "seq_len * microbatch_size > 65536 and model in ['7b',
// '13b']".
//
// Names: the axes (lib/sweep/axes.h) and the derived params, tokens (a step), nodes, device_batch,
// accum. Literals: numbers, 2^n, 'text', true, false, none. Operators, loosest first: or, and, not;
// == != < <= > >= in [..], not in [..]; + -; * / // %; unary -; min(..), max(..), brackets.
// Types are checked when the expression is read. A comparison with what is absent (an `auto`
// microbatch, a variable not set) is false; `x == none` and `x != none` ask for absence.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

namespace tessera::sweep {

// Value of a name or of a part of an expression; nothing is `none`.
using Operand = std::variant<std::monostate, double, std::string, bool>;

using Lookup = std::function<Operand(std::string_view name)>;

class Expression {
 public:
  // Error(input) at `where`, naming the column (from 1) inside the expression.
  static Expression parse(const std::string& text, const std::string& where);

  // Error(input) for a division by zero.
  bool holds(const Lookup& lookup) const;

  const std::string& text() const { return text_; }

  struct Node;

 private:
  std::string text_;
  std::string where_;
  std::shared_ptr<const Node> root_;
};

}  // namespace tessera::sweep
