// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/duration.h"

#include <doctest/doctest.h>

using tessera::sweep::parse_duration;

TEST_CASE("durations as people write them") {
  CHECK(parse_duration("90s") == 90);
  CHECK(parse_duration("30m") == 1800);
  CHECK(parse_duration("1h30m") == 5400);
  CHECK(parse_duration("2d") == 172800);
  CHECK(parse_duration("04:00:00") == 14400);
  CHECK(parse_duration("10:30") == 630);
}

TEST_CASE("anything else is none") {
  for (const char* text : {"", "5", "h", "2x", "1m1h", "1h1h", "-5m", "1:2:3", "1:60", "1:2:3:4",
                           ":30", "30:", "0s", "99999999999h", "9999999d", "1.5h", " 2h", "2h "}) {
    CAPTURE(text);
    CHECK_FALSE(parse_duration(text).has_value());
  }
}
