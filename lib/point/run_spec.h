// SPDX-License-Identifier: Apache-2.0
// The run specification: what submit hands to the trainer, one JSON object of at most 32 KiB
// (docs/formats.md). No YAML, no hash: the trainer uses it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/hardware/peaks.h"
#include "lib/point/point.h"

namespace tessera::sweep {

// Peak of the device for the point's precision, when submit knows it.
struct Peak {
  double tflops = 0;                               // dense, per device
  std::string source;                              // "catalogue: ..." or "measured: ..."
  std::optional<hardware::Disturbance> disturbed;  // of a measured one
  bool operator==(const Peak&) const = default;
};

// A job of several runs: what a run cannot tell of it by its own name.
struct InJob {
  std::string name;       // the job's
  std::size_t index = 0;  // which of its runs this is, from 0
  bool array = false;     // they are elements of an array
  bool operator==(const InJob&) const = default;
};

struct RunSpec {
  std::string project;
  std::string id;
  std::string run;
  std::string label;         // model name as asked for
  int repeat = 1;            // from 1
  int repeats = 1;           // asked for
  int attempt = 1;           // from 1
  std::string derived_from;  // id of the point this one was made from after an OOM, or empty
  std::string user;
  std::string job;  // the scheduler's id if known before the start, else empty
  Point point;
  std::vector<std::string> expect;  // device names the driver may report; empty: as follows
  // Regular expressions on that name, of the catalogue: one of the first must hold, none of the
  // second. Empty: any.
  std::vector<std::string> expect_match, expect_not;
  std::optional<Peak> peak;
  // What the plan leaves of a GPU's memory to context and libraries; 0: not known.
  std::int64_t reserve_bytes = 0;
  std::int64_t microbatch = 0;  // what an automatic one became; 0: the trainer finds it
  std::string run_dir;          // empty: records go to stdout
  int shared_with = 0;          // other runs that may share this machine
  int log_every = 1;
  // Not to be in the run's environment, whoever sets it (`env.NAME: null`). As `in_job` for those
  // who run it again or make the ledger anew; the trainer does nothing with them.
  std::vector<std::string> unset_env;
  std::optional<InJob> in_job;
  bool profile = false;  // measure the operations of a few steps behind the measured ones
};

std::string run_spec_json(const RunSpec& spec);

// Error(ExitCode::spec) with where, what and the fix.
RunSpec parse_run_spec(std::string_view json, const std::string& name);

}  // namespace tessera::sweep
