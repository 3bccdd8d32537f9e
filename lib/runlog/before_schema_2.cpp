// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/before_schema_2.h"

namespace tessera::runlog {

EndedBy ended_by_in_words(Status status, std::string_view reason) {
  if (reason.starts_with("interrupted")) return EndedBy::interrupted;
  if (reason.starts_with("cancelled")) return EndedBy::cancelled;  // "cancelled by its user"
  if (reason.starts_with("time limit near")) return EndedBy::time_limit;
  return ended_by_of(status);
}

std::optional<hardware::Disturbance> disturbance_in_words(std::string_view source) {
  // "measured: f32 GEMM, 2 threads, with 60 % of their CPU time"
  if (source.find("of their CPU time") == std::string_view::npos) return std::nullopt;
  return hardware::Disturbance::other_work;
}

}  // namespace tessera::runlog
