// SPDX-License-Identifier: Apache-2.0
// Writes the records of one rank of one attempt. Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lib/base/file.h"
#include "lib/runlog/facts.h"
#include "lib/runlog/footer.h"
#include "lib/runlog/record.h"

namespace tessera::runlog {

class Writer {
 public:
  // Makes run_dir/log.<attempt>.<restart>.<rank>.jsonl. It must not exist (an attempt is never
  // overwritten): a script that was started again by hand takes the next free attempt, and
  // `origin()` says which. Error(log_not_writable).
  static Writer to_folder(const std::filesystem::path& run_dir, Origin origin);
  // Each record is one write of a line feed, the record and a line feed, so that other output
  // cannot glue to it.
  static Writer to_stdout(Origin origin);

  // `fields` is an object of the record's own members. Adds the common ones, seals, writes with one
  // write(2). header and footer also get project, run and utc. Error(log_not_writable) with path
  // and cause: the run must then end.
  void write(Kind kind, const Json& fields);
  // The last records: the row of all that was written, and the footer. As write().
  void end(const Footer& footer);

  const Origin& origin() const { return origin_; }
  const Facts& facts() const { return facts_; }  // of all records written so far

 private:
  Writer(FileDescriptor file, std::filesystem::path path, Origin origin, bool framed);

  FileDescriptor file_;
  std::filesystem::path path_;
  Origin origin_;
  bool framed_ = false;
  std::int64_t n_ = 0;
  double start_s_ = 0;
  Facts facts_;
};

}  // namespace tessera::runlog
