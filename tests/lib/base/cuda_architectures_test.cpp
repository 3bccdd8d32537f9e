// SPDX-License-Identifier: Apache-2.0
#include "lib/base/cuda_architectures.h"

#include <doctest/doctest.h>

#include <vector>

using namespace tessera;

TEST_CASE("machine code runs on its generation from its capability on, PTX on all that is newer") {
  using List = std::vector<std::string>;
  const auto runs = [](const List& list, int capability) { return has_code_for(list, capability); };
  // A trainer for Hopper alone.
  CHECK(runs({"90-real"}, 90));
  CHECK_FALSE(runs({"90-real"}, 80));
  CHECK_FALSE(runs({"90-real"}, 100));
  CHECK_FALSE(runs({"90-real"}, 120));
  // That of the usual build: A100, A40, L40S, H100, GH200, B200, B300, RTX 5090; not T4 and V100.
  const List usual{"80", "90-real", "100-real", "120"};
  for (const int capability : {80, 86, 89, 90, 100, 103, 110, 120, 121, 130}) {
    CAPTURE(capability);
    CHECK(runs(usual, capability));
  }
  for (const int capability : {70, 75}) {
    CAPTURE(capability);
    CHECK_FALSE(runs(usual, capability));
  }
  CHECK(runs({"86-real"}, 89));
  CHECK_FALSE(runs({"89-real"}, 86));
  CHECK(runs({"80-virtual"}, 90));
  CHECK_FALSE(runs({"100-virtual"}, 90));
  // Code that uses what one capability alone has.
  CHECK(runs({"90a-real"}, 90));
  CHECK_FALSE(runs({"100a"}, 103));
  CHECK_FALSE(runs({}, 90));
  // Nothing tells what these stood for.
  CHECK(runs({"native"}, 90));
  CHECK(runs({"all-major"}, 120));
}

TEST_CASE("architectures in words") {
  using List = std::vector<std::string>;
  CHECK(architectures_text(List{"90-real"}) == "9.0");
  CHECK(architectures_text(List{"120-real", "80-real", "90a-real"}) == "8.0, 9.0, 12.0");
  CHECK(architectures_text(List{"80", "90-real", "100-real", "120"}) == "8.0 and newer");
  CHECK(architectures_text(List{"90-real", "100-virtual"}) == "9.0, 10.0 and newer");
  CHECK(compute_capability_text(121) == "12.1");
}
