// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/train/training.h"

#include <cmath>

namespace tessera::trainer::test {

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a.at(i)) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / size);
}

}  // namespace tessera::trainer::test
