// SPDX-License-Identifier: Apache-2.0
#include "lib/point/json_writer.h"

#include <fmt/format.h>

#include "lib/base/numbers.h"

namespace tessera::sweep {

namespace {

bool is_plain(char c) {
  return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20;
}

}  // namespace

void JsonWriter::escaped(std::string_view text) {
  buffer_ += '"';
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && is_plain(text[end])) ++end;
    buffer_.append(text.substr(begin, end - begin));
    if (end == text.size()) break;
    const char c = text[end];
    if (static_cast<unsigned char>(c) < 0x20) {
      buffer_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      buffer_ += '\\';
      buffer_ += c;
    }
    begin = end + 1;
  }
  buffer_ += '"';
}

void JsonWriter::separator() {
  if (!first_) buffer_ += ',';
  first_ = false;
}

void JsonWriter::name(std::string_view key) {
  separator();
  if (key.empty()) return;
  buffer_ += '"';
  buffer_.append(key);
  buffer_ += "\":";
}

void JsonWriter::open(std::string_view key) {
  name(key);
  buffer_ += '{';
  first_ = true;
}

void JsonWriter::close() {
  buffer_ += '}';
  first_ = false;
}

void JsonWriter::text(std::string_view key, std::string_view value) {
  name(key);
  escaped(value);
}

void JsonWriter::integer(std::string_view key, std::int64_t value) {
  name(key);
  const fmt::format_int digits(value);
  buffer_.append(digits.data(), digits.size());
}

void JsonWriter::unsigned_integer(std::string_view key, std::uint64_t value) {
  name(key);
  const fmt::format_int digits(value);
  buffer_.append(digits.data(), digits.size());
}

void JsonWriter::number(std::string_view key, double value) {
  name(key);
  buffer_ += shortest(value);
}

void JsonWriter::boolean(std::string_view key, bool value) {
  name(key);
  buffer_ += value ? "true" : "false";
}

void JsonWriter::texts(std::string_view key, const std::map<std::string, std::string>& values) {
  open(key);
  for (const auto& [member, value] : values) {
    separator();
    escaped(member);
    buffer_ += ':';
    escaped(value);
  }
  close();
}

}  // namespace tessera::sweep
