// What a person sees of a run: a line at its begin, one about every two seconds, one at its end.
#pragma once

#include <cstdint>
#include <cstdio>

#include "lib/runlog/footer.h"
#include "lib/sweep/run_spec.h"

namespace tessera::trainer {

class Progress {
 public:
  Progress(std::FILE* out, std::int64_t steps) : out_(out), steps_(steps) {}

  void begin(const sweep::RunSpec& spec, std::int64_t planned_bytes);
  void step(const runlog::StepSample& sample);
  void end(const runlog::Footer& footer);

 private:
  std::FILE* out_;
  std::int64_t steps_;
  double last_s_ = 0;
};

}  // namespace tessera::trainer
