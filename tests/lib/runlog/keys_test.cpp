// SPDX-License-Identifier: Apache-2.0
// The keys of records are said once: lib/runlog/keys.h has them, docs/formats.md lists the same,
// and what writes and reads records uses their names. The settings among them are the point's
// (lib/point/fields.h).
#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "lib/base/file.h"

using namespace tessera;

namespace {

std::set<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at)
    found.insert((*at)[1]);
  return found;
}

std::set<std::string> keys() {
  return matches(read_file("lib/runlog/keys.h"), std::regex(R"re(= "(\w+)";)re"));
}

// From one heading of docs/formats.md to the next of its rank.
std::string section(const std::string& heading) {
  const std::string text = read_file("docs/formats.md");
  const std::size_t begin = text.find("\n## " + heading);
  REQUIRE(begin != std::string::npos);
  return text.substr(begin, text.find("\n## ", begin + 1) - begin);
}

std::set<std::string> words(const std::string& text) {
  return matches(text, std::regex("([A-Za-z0-9_]+)"));
}

}  // namespace

TEST_CASE("docs/formats.md lists every key of a record, and no other") {
  const std::set<std::string> known = keys();
  CHECK(known.size() > 100);
  const std::string run_log = section("Run log");
  std::set<std::string> documented = words(section("Point and identity"));  // settings
  for (const std::string& code : matches(run_log, std::regex("`([^`\n]*)`"))) {
    const std::set<std::string> in_code = words(code);
    documented.insert(in_code.begin(), in_code.end());
  }
  for (const std::string& key : known) {
    CAPTURE(key);
    CHECK(documented.contains(key));
  }
  // A list of several keys in the table of records.
  for (const std::string& list : matches(run_log, std::regex("`(\\w+, [^`\n]*)`"))) {
    for (const std::string& word : words(list)) {
      CAPTURE(word);
      CHECK(known.contains(word));
    }
  }
}

TEST_CASE("what writes and reads records spells no key of its own") {
  const std::set<std::string> known = keys();
  // A member of a JSON value, an argument of those who take or put one, the name of a column.
  const std::regex spelled(
      R"re((?:\[|\b(?:find|at|contains|take|put|put_text|visit|integer|text|number|truth)\((?:\w+, )?|\{(?="\w+", \[))"(\w+)")re");
  CHECK(matches(R"(json["a"] find("b") take(record, "c", x) {"d", [](R r))", spelled).size() == 4);
  for (const char* file :
       {"lib/runlog/facts.cpp", "lib/runlog/footer.cpp", "lib/runlog/reader.cpp",
        "lib/runlog/record.cpp", "lib/runlog/writer.cpp", "trainer/run/records.cpp",
        "trainer/run/run.cpp", "trainer/train/profile.cpp", "collect/columns.cpp"}) {
    for (const std::string& literal : matches(read_file(file), spelled)) {
      CAPTURE(file);
      CAPTURE(literal);
      CHECK_FALSE(known.contains(literal));
    }
  }
}
