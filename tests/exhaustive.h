// SPDX-License-Identifier: Apache-2.0
// How much a test tries: a sample in each run, everything with TESSERA_TEST_EXHAUSTIVE=1.
#pragma once

#include <cstdlib>
#include <string_view>

namespace tessera::test {

inline bool is_exhaustive() {
  const char* value = std::getenv("TESSERA_TEST_EXHAUSTIVE");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace tessera::test
