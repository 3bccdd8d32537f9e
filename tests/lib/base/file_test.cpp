// SPDX-License-Identifier: Apache-2.0
#include "lib/base/file.h"

#include <doctest/doctest.h>

#include <set>

#include "lib/base/error.h"
#include "tests/temporary.h"

using namespace tessera;

TEST_CASE("an atomic write replaces the whole file and leaves nothing beside it") {
  const test::TemporaryFolder folder;
  write_file_atomically(folder / "a.txt", "one");
  write_file_atomically(folder / "a.txt", "two");
  CHECK(read_file(folder / "a.txt") == "two");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.insert(entry.path().filename());
  CHECK(names == std::set<std::string>{"a.txt"});
}

TEST_CASE("errors name the path and the cause") {
  const test::TemporaryFolder folder;
  CHECK_FALSE(read_file_if_exists(folder / "none").has_value());
  CHECK_THROWS_WITH_AS(
      read_file(folder / "none"),
      ((folder / "none").string() + ": cannot be read: No such file or directory").c_str(), Error);
  CHECK_THROWS_AS(write_file_atomically(folder / "no-such" / "a", "x"), Error);
  write_file_atomically(folder / "file", "x");
  CHECK_THROWS_AS(make_directories(folder / "file" / "sub"), Error);
  CHECK_THROWS_AS(read_file(folder.path()), Error);
}
