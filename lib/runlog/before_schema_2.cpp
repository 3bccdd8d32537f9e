#include "lib/runlog/before_schema_2.h"

namespace tessera::runlog {

EndedBy ended_by_in_words(Status status, std::string_view reason) {
  if (reason.starts_with("interrupted")) return EndedBy::interrupted;
  if (reason.starts_with("cancelled")) return EndedBy::cancelled;  // "cancelled by its user"
  if (reason.starts_with("time limit near")) return EndedBy::time_limit;
  return ended_by_of(status);
}

}  // namespace tessera::runlog
