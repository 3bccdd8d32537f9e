// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/text.h"

#include <doctest/doctest.h>

using namespace tessera::runlog;

TEST_CASE("text is cut between characters and stays valid UTF-8") {
  CHECK(cut_text("short", 10) == "short");
  CHECK(cut_text("0123456789", 10) == "0123456789");
  CHECK(cut_text("0123456789a", 10) == "0123456...");
  CHECK(cut_text("12345\u00e9\u00e9\u00e9", 10) == "12345\u00e9...");
  CHECK(cut_text("a\xff\xc0\xaf z\xed\xa0\x80", 40) == "a??? z???");
  CHECK(cut_text("abcdef", 2) == "..");
  CHECK(cut_text("", 5).empty());
}
