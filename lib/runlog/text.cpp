// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/text.h"

namespace tessera::runlog {

namespace {

// Bytes of the UTF-8 character that starts at text[0], 0 if none does.
std::size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  std::size_t length = 0;
  unsigned point = 0;
  unsigned least = 0;
  if (lead < 0x80) return 1;
  if ((lead & 0xE0) == 0xC0) {
    length = 2, point = lead & 0x1FU, least = 0x80;
  } else if ((lead & 0xF0) == 0xE0) {
    length = 3, point = lead & 0x0FU, least = 0x800;
  } else if ((lead & 0xF8) == 0xF0) {
    length = 4, point = lead & 0x07U, least = 0x10000;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return 0;
    point = point << 6 | (next & 0x3FU);
  }
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  return point < least || point > 0x10FFFF || surrogate ? 0 : length;
}

}  // namespace

std::string cut_text(std::string_view text, std::size_t bytes) {
  constexpr std::string_view kMark = "...";
  std::string valid;
  std::size_t last_fit = 0;  // length up to which the mark still fits
  while (!text.empty()) {
    const std::size_t length = character_bytes(text);
    valid += length == 0 ? std::string_view("?") : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
    if (valid.size() + kMark.size() <= bytes) last_fit = valid.size();
    if (valid.size() > bytes) {
      valid.resize(last_fit);
      return valid + std::string(kMark.substr(0, bytes - last_fit));
    }
  }
  return valid;
}

}  // namespace tessera::runlog
