// SPDX-License-Identifier: Apache-2.0
// A 128-bit hash of an operation's whole value. With it a run can tell, without touching the heap,
// whether an operation was prepared.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/ops.h"

namespace tessera::trainer {

struct Fingerprint {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  bool operator==(const Fingerprint&) const = default;
};

struct FingerprintHash {
  std::size_t operator()(const Fingerprint& f) const { return f.first; }
};

Fingerprint fingerprint(const Op& op);

}  // namespace tessera::trainer
