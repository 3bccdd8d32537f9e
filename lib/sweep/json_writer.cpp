#include "lib/sweep/json_writer.h"

#include <fmt/format.h>

#include "lib/base/numbers.h"

namespace tessera::sweep {

void JsonWriter::escaped(std::string_view text) {
  buffer_ += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      buffer_ += '\\';
      buffer_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      buffer_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      buffer_ += c;
    }
  }
  buffer_ += '"';
}

void JsonWriter::name(std::string_view key) {
  if (!first_) buffer_ += ',';
  first_ = false;
  if (key.empty()) return;
  escaped(key);
  buffer_ += ':';
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
  fmt::format_to(std::back_inserter(buffer_), "{}", value);
}

void JsonWriter::unsigned_integer(std::string_view key, std::uint64_t value) {
  name(key);
  fmt::format_to(std::back_inserter(buffer_), "{}", value);
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
  for (const auto& [member, value] : values) text(member, value);
  close();
}

}  // namespace tessera::sweep
