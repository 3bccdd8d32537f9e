// SPDX-License-Identifier: Apache-2.0
// SHA-256, the hash behind a point's identity.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace tessera
