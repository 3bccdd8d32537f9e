// SPDX-License-Identifier: Apache-2.0
// What `submit doctor` found out about a cluster.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::cluster {

struct Finding {
  enum class Level : std::uint8_t {
    ok,
    note,   // worth knowing
    mend,   // runs would fail, wait for ever or be dropped
    silent  // it could not be found out
  };
  Level level = Level::ok;
  std::string about;  // "partition", "workspace", a name in gpus
  std::string text;   // one line
  std::string fix;    // of mend: what would be right
};

}  // namespace tessera::cluster
