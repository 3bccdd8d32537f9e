// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/constraint.h"

#include <doctest/doctest.h>

#include <random>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::sweep;

namespace {

// A point with microbatch auto and without env.NCCL_ALGO.
Operand value(std::string_view name) {
  if (name == "model") return "13b";
  if (name == "precision") return "amp_bf16";
  if (name == "env.NCCL_PROTO") return "LL128";
  if (name == "gpus") return 16.0;
  if (name == "seq_len") return 2048.0;
  if (name == "params") return 12853954560.0;
  if (name == "exact_steps") return true;
  return {};
}

bool holds(const std::string& text) {
  return Expression::parse(text, "a.yaml:1:1").holds(value);
}

std::string fault_of_constraint(const std::string& text) {
  try {
    Expression::parse(text, "a.yaml:1:1").holds(value);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::input);
    return std::string(error.what()).substr(std::string("a.yaml:1:1: ").size());
  }
  return "no error";
}

}  // namespace

TEST_CASE("comparisons, membership and logic") {
  CHECK(holds("model == '13b' and gpus == 16"));
  CHECK(holds("model != \"7b\""));
  CHECK(holds("gpus in [8, 16] and model not in ['7b', '70b']"));
  CHECK_FALSE(holds("gpus not in [8, 16]"));
  CHECK(holds("not (gpus < 16) and not gpus > 16"));
  CHECK(holds("gpus >= 16 or 1 == 2"));
  CHECK(holds("exact_steps"));
  CHECK(holds("exact_steps == true"));
  CHECK(holds("env.NCCL_PROTO == 'LL128'"));
  CHECK(holds("params > 1.2e10"));
  CHECK(holds("true or true and false"));  // and binds tighter
  CHECK_FALSE(holds("not true or false"));
}

TEST_CASE("arithmetic binds as usual") {
  CHECK(holds("1 + 2 * 3 == 7"));
  CHECK(holds("(1 + 2) * 3 == 9"));
  CHECK(holds("10 - 4 - 3 == 3"));
  CHECK(holds("7 // 2 == 3 and 7 / 2 == 3.5 and 7 % 4 == 3"));
  CHECK(holds("-7 // 2 == -4 and -7 % 4 == 1"));
  CHECK(holds("seq_len == 2^11"));
  CHECK(holds("- -1 == 1"));
  CHECK(holds("min(3, gpus, 5) == 3 and max(3, gpus) == 16"));
  CHECK(holds("seq_len*gpus>32767"));
}

TEST_CASE("what is absent compares as false, and absence can be asked for") {
  CHECK_FALSE(holds("microbatch_size > 1"));
  CHECK_FALSE(holds("microbatch_size <= 1"));
  CHECK_FALSE(holds("microbatch_size != 1"));
  CHECK_FALSE(holds("microbatch_size * seq_len < 2^40"));
  CHECK_FALSE(holds("microbatch_size in [1]"));
  CHECK_FALSE(holds("microbatch_size not in [1]"));
  CHECK(holds("microbatch_size == none"));
  CHECK_FALSE(holds("microbatch_size != none"));
  CHECK(holds("env.NCCL_ALGO == none and env.NCCL_PROTO != none"));
  CHECK_FALSE(holds("min(microbatch_size, 1) == 1"));
}

TEST_CASE("literals are spelt as the axis spells them") {
  CHECK(holds("precision == 'bf16'"));
  CHECK(holds("precision in ['fp16', 'bf16']"));
  CHECK(fault_of_constraint("precision == 'amp_bf61'") ==
        "column 14 of the expression: unknown value 'amp_bf61'; did you mean amp_bf16?");
}

TEST_CASE("faults point at the column") {
  CHECK(fault_of_constraint("modle == '7b'") ==
        "column 1 of the expression: unknown name 'modle'; did you mean model?");
  CHECK(fault_of_constraint("gpus = 8") ==
        "column 6 of the expression: '=' does not belong here; comparison is ==");
  CHECK(fault_of_constraint("gpus == '8'") ==
        "column 6 of the expression: a number is compared with text");
  CHECK(fault_of_constraint("gpus + model == 8") ==
        "column 8 of the expression: each side of '+' must be a number, not text");
  CHECK(fault_of_constraint("gpus") ==
        "column 1 of the expression: the expression must be true or false, not a number");
  CHECK(fault_of_constraint("gpus and true")
            .starts_with("column 1 of the expression: each side of 'and'"));
  CHECK(fault_of_constraint("gpus == ") ==
        "column 9 of the expression: the expression's end where a value belongs");
  CHECK(fault_of_constraint("(gpus == 8") ==
        "column 11 of the expression: the expression's end where ')' belongs");
  CHECK(fault_of_constraint("gpus == 8)") ==
        "column 10 of the expression: ')' does not belong here");
  CHECK(fault_of_constraint("1 < gpus < 9") ==
        "column 10 of the expression: '<' does not belong here");
  CHECK(fault_of_constraint("gpus == 011") == "column 9 of the expression: '011' is not a number");
  CHECK(fault_of_constraint("gpus == 2^64") ==
        "column 9 of the expression: '2^64' is not a number");
  CHECK(fault_of_constraint("model == '7b") ==
        "column 10 of the expression: this quote is not closed");
  CHECK(fault_of_constraint("model < '7b'") == "column 7 of the expression: text has no order");
  CHECK(fault_of_constraint("gpus < none")
            .starts_with("column 6 of the expression: none has no order"));
  CHECK(fault_of_constraint("gpus in 8") == "column 9 of the expression: '8' where '[' belongs");
  CHECK(fault_of_constraint("gpus in []") ==
        "column 10 of the expression: ']' where a value belongs");
  CHECK(fault_of_constraint("batch == 1")
            .starts_with("column 1 of the expression: unknown name 'batch'"));
  CHECK(fault_of_constraint("min() == 1") ==
        "column 5 of the expression: ')' where a value belongs");
  CHECK(fault_of_constraint("") ==
        "column 1 of the expression: the expression's end where a value belongs");
  CHECK(fault_of_constraint("gpus / (gpus - 16) == 1") ==
        "column 6 of the expression: division by zero");
  CHECK(fault_of_constraint("gpus ; 1") == "column 6 of the expression: ';' does not belong here");
  CHECK(fault_of_constraint(std::string(100, '(') + "gpus == 1").find("nested too deeply") !=
        std::string::npos);
  CHECK(fault_of_constraint(std::string(5000, ' ')).find("longer than") != std::string::npos);
}

TEST_CASE("any row of tokens is an expression or an error") {
  const std::vector<std::string> tokens = {"gpus",        "model",  "microbatch_size",
                                           "exact_steps", "8",      "2^3",
                                           "'7b'",        "true",   "none",
                                           "and",         "or",     "not",
                                           "in",          "not in", "==",
                                           "<",           "+",      "-",
                                           "*",           "/",      "//",
                                           "%",           "(",      ")",
                                           "[",           "]",      ",",
                                           "min",         "(",      "1e9"};
  std::mt19937 random(11);
  int read = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string text;
    for (std::size_t n = 1 + random() % 8; n > 0; --n)
      text += tokens[random() % tokens.size()] + " ";
    try {
      Expression::parse(text, "a.yaml:1:1").holds(value);
      ++read;
    } catch (const Error& error) {
      const bool has_place = std::string(error.what()).find("column ") != std::string::npos;
      if (!has_place) FAIL(text);
    }
  }
  CHECK(read > 1000);
}
