// SPDX-License-Identifier: Apache-2.0
// CSV as RFC 4180 describes it, and what breaks it.
#include "lib/base/csv.h"

#include <doctest/doctest.h>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/csv.h"

using namespace tessera;

namespace {

std::string fault(std::string_view text) {
  try {
    parse_csv(text, "t.csv");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::input);
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("cells, quoted cells and both line ends are read as RFC 4180 says") {
  const CsvTable table =
      parse_csv("a,b,c\r\n1,\"x, y\",\"say \"\"z\"\"\"\n,\"two\nlines\",\n4,5,6", "t.csv");
  CHECK(table.columns == std::vector<std::string>{"a", "b", "c"});
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[0].cells == std::vector<std::string>{"1", "x, y", "say \"z\""});
  CHECK(table.rows[1].cells == std::vector<std::string>{"", "two\nlines", ""});
  CHECK(table.rows[2].cells == std::vector<std::string>{"4", "5", "6"});
  CHECK(table.rows[1].line == 3);
  CHECK(table.rows[2].line == 5);  // the row before it took two lines
  CHECK(table.column("c") == 2);
  CHECK(parse_csv("a\n\"\"\n", "t.csv").rows.at(0).cells.at(0).empty());
}

TEST_CASE("a broken table is told with its line") {
  CHECK(fault("").starts_with("t.csv: empty"));
  CHECK(fault("a,b\n1,2\n3\n") == "t.csv:3: 1 cells for 2 columns");
  CHECK(fault("a,b\n1,2,3\n") == "t.csv:2: 3 cells for 2 columns");
  CHECK(fault("a,b\n1,x\"y\n").starts_with("t.csv:2: a quote inside an unquoted cell"));
  CHECK(fault("a,b\n1,\"x\n\n").starts_with("t.csv:2: a quoted cell does not end"));
  CHECK(fault("a,b\n1,\"x\"y\n").starts_with("t.csv:2: text behind a quoted cell"));
  CHECK(fault("a,b\n1,x\ry\n").starts_with("t.csv:2: "));
  CHECK_THROWS_WITH_AS(static_cast<void>(parse_csv("mfu,hfu\n", "t.csv").column("mfy")),
                       "t.csv: no column 'mfy'; did you mean mfu?", Error);
}

TEST_CASE("the published tables are read as the tests' own reader reads them") {
  for (const std::string name : {"mpt-published", "nemo-automodel-published"}) {
    const std::string path = "yamls/reference/" + name + ".csv";
    const CsvTable table = parse_csv(read_file(path), path);
    const auto rows = test::read_csv(path);
    REQUIRE(table.rows.size() == rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (const auto& [column, cell] : rows[i])
        CHECK(table.rows[i].cells[table.column(column)] == cell);
    }
  }
}
