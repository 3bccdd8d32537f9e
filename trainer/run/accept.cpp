// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/accept.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/hardware/driver_name.h"
#include "lib/point/data_path.h"
#include "lib/point/memory_need.h"
#include "trainer/comm/gloo/gloo.h"
#include "trainer/device/gpu.h"

namespace tessera::trainer {

namespace {

using sweep::Point;

constexpr std::int64_t kMostSteps = 1000000;
constexpr std::int64_t kMostThreads = 1024;

[[noreturn]] void unsupported(std::string_view field, std::string_view what, std::string_view fix) {
  throw Error(ExitCode::unsupported, fmt::format("point.{}", field), what,
              fmt::format("use {}", fix));
}

[[noreturn]] void wrong(std::string_view field, std::string_view what, std::string_view fix = {}) {
  throw Error(ExitCode::spec, fmt::format("point.{}", field), what, fix);
}

// The ranks must be those of the point: as many, on as many nodes, and in equal shares.
void accept_ranks(const Point& point, const Place& place) {
  if (point.gpus > comm::kMostGlooRanks) {
    unsupported("gpus", fmt::format("{}: too many ranks", point.gpus),
                fmt::format("at most {}", comm::kMostGlooRanks));
  }
  if (point.gpus > 1 && place.ranks == 1) {
    wrong("gpus", fmt::format("{}: one process is one rank", point.gpus),
          fmt::format("start it as trainer --nproc {}, by srun or by torchrun", point.gpus));
  }
  if (point.gpus != place.ranks) {
    wrong("gpus",
          fmt::format("{} ranks were started, the point has {} gpus", place.ranks, point.gpus),
          fmt::format("start {}", point.gpus));
  }
  if (point.nodes != place.nodes) {
    wrong("nodes",
          fmt::format("the ranks were started on {}, the point has {}", place.nodes, point.nodes),
          fmt::format("start them on {}", point.nodes));
  }
  if (point.gpus == 1) return;
  if (point.sharding_strategy != Sharding::no_shard) {
    unsupported(
        "sharding_strategy",
        fmt::format("{}: over several ranks it comes later", to_text(point.sharding_strategy)),
        "NO_SHARD");
  }
  if (point.global_batch % point.gpus != 0) {
    wrong("global_batch",
          fmt::format("{} is not divisible by {} ranks", point.global_batch, point.gpus),
          fmt::format("a multiple of {}", point.gpus));
  }
}

void accept_place(const Point& point, const Place& place) {
  const bool is_gpu = point.gpu != "cpu";
  if (is_gpu) {
    const GpuPresence there = gpu_presence();
    if (there.names.empty())
      unsupported("gpu", fmt::format("{}: {}", point.gpu, there.why_none),
                  "a machine with a GPU, or cpu");
  }
  accept_ranks(point, place);
  if (is_gpu && point.gpus > 1) {
    unsupported("gpus", fmt::format("{}: ranks of GPUs come later", point.gpus), "1");
  }
  if (point.hybrid_group > 1) {
    unsupported("hybrid_group", fmt::format("{}: nothing is sharded", point.hybrid_group), "0");
  }
  if (point.threads > kMostThreads)
    wrong("threads", fmt::format("{}", point.threads), fmt::format("at most {}", kMostThreads));
}

void accept_settings(const Point& point) {
  if (point.precision == Precision::tf32 && point.gpu == "cpu") {
    unsupported("precision", "tf32: a CPU's f32 products are not rounded to TF32",
                "fp32, or a GPU");
  }
  if (point.precision == Precision::amp_fp16) {
    unsupported("precision", "amp_fp16: needs a loss scale, which no operation has yet",
                "fp32 or amp_bf16");
  }
  if (point.precision == Precision::amp_fp8) {
    unsupported("precision",
                "amp_fp8: needs 8-bit products with a scale a tensor, which no operation has yet",
                "fp32 or amp_bf16");
  }
  if (point.mixed_precision == MixedPrecision::pure && point.gpus == 1) {
    unsupported("mixed_precision", "PURE: one rank sends no gradients, so it would run as DEFAULT",
                "DEFAULT");
  }
  if (point.mixed_precision == MixedPrecision::pure && is_f32(point.precision)) {
    unsupported("mixed_precision",
                fmt::format("PURE: under {} all is f32, so it would run as DEFAULT",
                            to_text(point.precision)),
                "DEFAULT");
  }
  if (point.mixed_precision == MixedPrecision::full && is_f32(point.precision)) {
    unsupported("mixed_precision",
                fmt::format("FULL: under {} all is f32, so it would run as DEFAULT",
                            to_text(point.precision)),
                "DEFAULT");
  }
  // Faults of the file itself are reported by open_data (run_data.h).
  if (point.data != "synthetic" && !sweep::names_file(point.data)) {
    unsupported("data", fmt::format("{}: the engine has no data set of this name", point.data),
                "synthetic, or the path of a token file, with a slash or a dot in it");
  }
}

void accept_amounts(const Point& point) {
  if (point.steps > kMostSteps)
    wrong("steps", fmt::format("{}", point.steps), fmt::format("at most {}", kMostSteps));
  if (point.warmup >= point.steps) {
    wrong("warmup", fmt::format("{} of {} steps leave none to measure", point.warmup, point.steps),
          "fewer warm-up steps");
  }
  // A microbatch's rows and its tokens are 32-bit numbers.
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  // An automatic microbatch may become the rank's whole batch.
  const std::int64_t batch = point.global_batch / point.gpus;
  const std::int64_t sequences = point.microbatch_size == sweep::kAutoMicrobatch
                                     ? batch
                                     : std::min(point.microbatch_size, batch);
  if (point.seq_len >= kMost / sequences) {
    unsupported("seq_len", fmt::format("{} x {} tokens a microbatch", sequences, point.seq_len),
                "fewer than 2^31");
  }
  if (memory::microbatch_count(batch, sequences) > memory::kMostMicrobatches) {
    unsupported("microbatch_size",
                fmt::format("{} of {} sequences: too many microbatches a step", sequences, batch),
                fmt::format("at most {}", memory::kMostMicrobatches));
  }
  if (point.model.vocab > kMost / 2)
    unsupported("model.vocab", fmt::format("{}", point.model.vocab), "at most 2^30");
}

// An environment variable that is an axis must have its value in this process; otherwise the row
// would be wrong.
void accept_environment(const Point& point) {
  for (const auto& [name, value] : point.env) {
    const char* there = std::getenv(name.c_str());
    if (there == nullptr || value != there) {
      wrong(
          fmt::format("env.{}", name),
          fmt::format("is {} in this process, not {}", there == nullptr ? "not set" : there, value),
          "start the trainer with it");
    }
  }
}

}  // namespace

void accept(const sweep::RunSpec& spec, const Place& place) {
  accept_place(spec.point, place);
  if (spec.profile && place.ranks > 1) {
    throw Error(ExitCode::unsupported, "profile",
                "measures the operations of one rank, not yet what ranks send each other",
                "profile a point of 1 gpu");
  }
  accept_settings(spec.point);
  accept_amounts(spec.point);
  accept_environment(spec.point);
}

void expect_device(const sweep::RunSpec& spec, const std::string& device) {
  if (spec.expect.empty()) {
    if (spec.expect_match.empty() ||
        hardware::is_called({.match = spec.expect_match, .not_match = spec.expect_not}, device))
      return;
    throw Error(ExitCode::wrong_device, "expect",
                fmt::format("the device here is {}, which the catalogue does not call {}", device,
                            spec.point.gpu),
                fmt::format("the right name in gpus, or expect: [\"{}\"] beside it", device));
  }
  if (std::ranges::find(spec.expect, device) != spec.expect.end()) return;
  std::string expected;
  for (const std::string& name : spec.expect) expected += (expected.empty() ? "" : " or ") + name;
  throw Error(ExitCode::wrong_device, "expect", fmt::format("the device here is {}", device),
              expected);
}

// An automatic microbatch is resolved here, by the memory plan that the engine will make.
Setup setup_of(const sweep::RunSpec& spec, std::int64_t capacity_bytes) {
  Point point = spec.point;
  point.threads = threads_of(point);
  std::int64_t microbatch = spec.microbatch > 0 ? spec.microbatch : point.microbatch_size;
  if (microbatch == sweep::kAutoMicrobatch) {
    sweep::MemoryNeeds needs;
    microbatch = needs.largest_microbatch(point, capacity_bytes);
    if (microbatch == 0) {
      const std::int64_t need = needs.bytes(point, 1);
      throw Error(point.gpu == "cpu" ? ExitCode::host_oom : ExitCode::oom, "memory plan",
                  fmt::format("even one sequence needs {}, of {} that may be used",
                              sweep::gib_text(need), sweep::gib_text(capacity_bytes)),
                  "a smaller model, a shorter seq_len or activation_checkpointing: full");
    }
  }
  return {.memory = sweep::memory_config(point, microbatch),
          .recipe = {.peak_lr = point.lr},
          .seed = point.seed};
}

int threads_of(const Point& point) {
  if (point.threads > 0) return static_cast<int>(point.threads);
  return usable_cpus();
}

}  // namespace tessera::trainer
