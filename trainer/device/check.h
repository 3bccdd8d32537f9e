// SPDX-License-Identifier: Apache-2.0
// The rules for an operation's shapes and dtypes on every device. Kernels rely on them.
#pragma once

#include "trainer/device/ops.h"

namespace tessera::trainer {

// Checks an operation. Error(unsupported) for what no device can do, Error(internal) for an
// operation whose parts do not fit together. Both say which operation and what is wrong.
void check(const Op& op);

}  // namespace tessera::trainer
