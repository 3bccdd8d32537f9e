// SPDX-License-Identifier: Apache-2.0
// The progress of a run for people: a line at its start, one about every two seconds, one at its
// end.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "lib/point/run_spec.h"
#include "lib/runlog/footer.h"

namespace tessera::trainer {

class Progress {
 public:
  explicit Progress(std::FILE* out) : out_(out) {}

  // exact: the run takes the steps asked for, not at least so many.
  void begin(const sweep::RunSpec& spec, std::int64_t planned_bytes, bool exact);
  void step(const runlog::StepSample& sample);
  void end(const runlog::Footer& footer);
  // Prints lines as they are.
  void say(const std::string& text);

 private:
  std::FILE* out_;
  std::string steps_;  // "30", "30+"
  double last_s_ = 0;
};

}  // namespace tessera::trainer
