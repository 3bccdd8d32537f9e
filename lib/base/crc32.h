// SPDX-License-Identifier: Apache-2.0
// CRC-32 (IEEE 802.3, as in zlib and PNG), the seal of every record line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// The CRC of a text in parts: `before` is the CRC of what precedes `bytes`.
std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0);

// Record lines of the run log and the ledger: a JSON object whose last key is "crc", 8 hexadecimal
// digits of the CRC-32 of all bytes before `,"crc"`. So no cut or glued line is ever believed.

// `object` is a JSON object without line feeds, "{...}", not empty. Returns the sealed line without
// a line feed.
std::string seal(std::string_view object);

// True if `line` (without line feed) is a sealed object whose CRC holds.
bool seal_holds(std::string_view line);

}  // namespace tessera
