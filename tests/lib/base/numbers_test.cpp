// SPDX-License-Identifier: Apache-2.0
#include "lib/base/numbers.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <limits>

#include "lib/base/error.h"

using namespace tessera;

TEST_CASE("integers are decimal or 2^n, and nothing else") {
  CHECK(parse_integer("0") == 0);
  CHECK(parse_integer("-7") == -7);
  CHECK(parse_integer("2^13") == 8192);
  CHECK(parse_integer("2^0") == 1);
  CHECK(parse_integer("2^62") == std::int64_t{1} << 62);
  CHECK(parse_integer("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  CHECK(parse_integer("-9223372036854775808") == std::numeric_limits<std::int64_t>::min());
  for (const char* bad : {"",
                          "-",
                          "011",
                          "00",
                          "-01",
                          "+1",
                          " 1",
                          "1 ",
                          "1.0",
                          "1e3",
                          "0x10",
                          "1_000",
                          "2^",
                          "2^-1",
                          "2^63",
                          "2^011",
                          "2^1.5",
                          "3^2",
                          "9223372036854775808",
                          "99999999999999999999999",
                          "nan"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_integer(bad).has_value());
  }
}

TEST_CASE("the fault of an integer is named") {
  CHECK(integer_fault("011") == "has a leading zero");
  CHECK(integer_fault("2^-3") == "has a negative exponent");
  CHECK(integer_fault("2^64") == "does not fit 64 bits");
  CHECK(integer_fault("9223372036854775808") == "does not fit 64 bits");
  CHECK(integer_fault("seven") == "is not a decimal integer");
}

TEST_CASE("numbers are finite decimals") {
  CHECK(parse_number("1.2e-4") == 1.2e-4);
  CHECK(parse_number("67") == 67.0);
  CHECK(parse_number("-0.5") == -0.5);
  CHECK(parse_number("2^10") == 1024.0);
  for (const char* bad :
       {"", ".5", "011", "01.5", "inf", "nan", "1e999", "1.5x", "0x1p3", "2^0.5"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_number(bad).has_value());
  }
}

TEST_CASE("require_integer says where, what and what would be right") {
  CHECK(require_integer("8", "-g", 1, 1024) == 8);
  CHECK_THROWS_WITH_AS(require_integer("011", "-s", 1, 30),
                       "-s: '011' has a leading zero; write a decimal integer or 2^n", Error);
  CHECK_THROWS_WITH_AS(require_integer("99", "-s", 1, 30), "-s: 99 is out of range; from 1 to 30",
                       Error);
}

TEST_CASE("shortest digits read back as the same double") {
  CHECK(shortest(0.1) == "0.1");
  CHECK(shortest(85144) == "85144");
  CHECK(shortest(-0.0) == "0");
  for (const double value : {1.0 / 3, 1e300, 5e-324, 123456789.123456789, 0.1 + 0.2}) {
    CHECK(std::strtod(shortest(value).c_str(), nullptr) == value);
  }
}
