// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/record.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "lib/base/numbers.h"
#include "lib/runlog/keys.h"

namespace tessera::runlog {

namespace {

const std::string& start() {
  static const std::string text = fmt::format(R"({{"{}":)", keys::schema);
  return text;
}

}  // namespace

bool starts_as_record(std::string_view line) {
  return line.starts_with(start());
}

std::optional<int> record_schema(std::string_view line) {
  if (!starts_as_record(line)) return std::nullopt;
  line.remove_prefix(start().size());
  constexpr std::size_t kMostDigits = 9;
  const std::size_t comma = line.substr(0, kMostDigits + 1).find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  const auto schema = parse_integer(line.substr(0, comma));
  return schema ? std::optional(static_cast<int>(*schema)) : std::nullopt;
}

EndedBy ended_by_of(Status status) {
  switch (status) {
    case Status::ok:
      return EndedBy::completed;
    case Status::oom:
    case Status::host_oom:
      return EndedBy::out_of_memory;
    case Status::timeout:
      return EndedBy::time_limit;
    case Status::nan:
      return EndedBy::not_finite;
    case Status::comm_error:
      return EndedBy::comm_error;
    case Status::node_fail:
      return EndedBy::node_fail;
    case Status::preempted:
      return EndedBy::preempted;
    case Status::cancelled:
      return EndedBy::cancelled;
    case Status::start_fail:
    case Status::failed:
      return EndedBy::error;
    case Status::partial:
    case Status::running:
    case Status::pending:
    case Status::skipped:
    case Status::missing:
    case Status::unknown:
      break;
  }
  return EndedBy::unknown;
}

std::string log_file_name(int attempt, int restart, int rank) {
  return fmt::format("log.{}.{}.{}.jsonl", attempt, restart, rank);
}

bool parse_log_file_name(std::string_view name, LogFileName& parts) {
  constexpr std::string_view kPrefix = "log.";
  constexpr std::string_view kSuffix = ".jsonl";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
      name.size() <= kPrefix.size() + kSuffix.size()) {
    return false;
  }
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  std::array<int, 3> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t dot = i + 1 < numbers.size() ? name.find('.') : name.size();
    if (dot == std::string_view::npos) return false;
    const auto number = parse_integer(name.substr(0, dot));
    if (!number || *number < 0 || *number > std::numeric_limits<int>::max()) return false;
    numbers[i] = static_cast<int>(*number);
    name.remove_prefix(std::min(name.size(), dot + 1));
  }
  parts = {.attempt = numbers[0], .restart = numbers[1], .rank = numbers[2]};
  return parts.attempt >= 1;
}

}  // namespace tessera::runlog
