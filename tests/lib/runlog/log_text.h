// SPDX-License-Identifier: Apache-2.0
// Text of a run log as runlog::Writer writes it, but with clocks of its own, so that it is the same
// each time.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lib/base/crc32.h"
#include "lib/runlog/facts.h"
#include "lib/runlog/footer.h"
#include "lib/runlog/record.h"

namespace tessera::test {

class LogText {
 public:
  explicit LogText(runlog::Origin origin) : origin_(std::move(origin)) {}

  LogText& add(runlog::Kind kind, const runlog::Json& fields) {
    runlog::Json record;
    record["tessera"] = runlog::kSchema;
    record["t"] = to_text(kind);
    const bool names_run = kind == runlog::Kind::header || kind == runlog::Kind::footer;
    if (names_run) {
      record["project"] = origin_.project;
      record["run"] = origin_.run;
    }
    record["id"] = origin_.id;
    record["rep"] = origin_.repeat;
    record["try"] = origin_.attempt;
    record["restart"] = origin_.restart;
    record["rank"] = origin_.rank;
    record["n"] = n_;
    if (names_run) record["utc"] = fmt::format("2026-11-29T12:{:02}:00.000Z", n_ % 60);
    record["mono_s"] = static_cast<double>(n_) * 0.5;
    record.update(fields);
    text_ += seal(record.dump()) + "\n";
    absorb(facts_, record);
    ++n_;
    return *this;
  }

  // The row of `facts`, and the footer.
  LogText& end(const runlog::Footer& footer, const runlog::Facts& facts) {
    for (const auto& [kind, fields] : last_records(footer, facts)) add(kind, fields);
    return *this;
  }
  LogText& end(const runlog::Footer& footer) { return end(footer, facts_); }

  const std::string& text() const { return text_; }
  const runlog::Origin& origin() const { return origin_; }
  const runlog::Facts& facts() const { return facts_; }  // of all records so far

 private:
  runlog::Origin origin_;
  std::string text_;
  runlog::Facts facts_;
  int n_ = 0;
};

// Warm-up steps 1..warmup, then measured ones, each `seconds` long.
inline void add_steps(LogText& log, int warmup, int measured, double seconds, std::int64_t tokens) {
  for (int step = 1; step <= warmup + measured; ++step) {
    log.add(runlog::Kind::step, {{"step", step},
                                 {"warmup", step <= warmup},
                                 {"seconds", seconds},
                                 {"tokens", tokens},
                                 {"loss", 11.0 - 0.0625 * step},
                                 {"grad_norm", 3.5},
                                 {"data_wait_s", 0.001},
                                 {"skipped", false}});
  }
}

}  // namespace tessera::test
