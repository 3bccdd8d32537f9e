// SPDX-License-Identifier: Apache-2.0
// What a self-test checks, and on what.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/names.h"

namespace tessera::trainer {

enum class SelftestPart : std::uint8_t {
  attention,   // GPU: cuDNN's fused kernels against matrix products and softmax
  operations,  // every case of the table of operations (cases.h) against the CPU's f64
  training,    // GPU: steps of a 125m model against the CPU's
  bits,        // the same steps twice, by the same bits
};

struct SelftestOptions {
  bool gpu = false;                 // else the CPU
  int threads = 1;                  // of the CPU
  std::vector<SelftestPart> parts;  // empty: all that the device has
  // Cases of few elements alone, each tensor in memory of its own: for checkers, which slow all
  // down and watch allocations.
  bool small = false;
  int from = 1;  // number of the first case, of attention and operations
};

}  // namespace tessera::trainer

namespace tessera {
template <>
struct Names<trainer::SelftestPart> {
  using enum trainer::SelftestPart;
  static constexpr std::pair<trainer::SelftestPart, std::string_view> table[] = {
      {attention, "attention"}, {operations, "operations"}, {training, "training"}, {bits, "bits"}};
};
}  // namespace tessera
