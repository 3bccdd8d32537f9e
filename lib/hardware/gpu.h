// SPDX-License-Identifier: Apache-2.0
// A GPU as the catalogue describes it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::hardware {

// What context, code and libraries take of a GPU's memory where nobody has said how much.
constexpr double kUsualReserveGib = 2;

struct Gpu {
  std::string name;
  std::vector<std::string> match;         // regular expressions on the driver's name: one must hold
  std::vector<std::string> not_match;     // none of these may
  double memory_gib = 0;                  // that the driver reports
  double reserve_gib = kUsualReserveGib;  // of it for context and libraries
  int compute_capability = 0;             // 90 is 9.0; 0: not said
  std::map<std::string, std::optional<double>>
      peak_tflops;  // by precision; none: has no such units
  std::string source;
};

struct Catalogue {
  std::vector<Gpu> gpus;
};

}  // namespace tessera::hardware
