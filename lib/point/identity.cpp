// SPDX-License-Identifier: Apache-2.0
#include "lib/point/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lib/base/hash.h"
#include "lib/schedule/config.h"
#include "lib/schedule/recompute.h"

namespace tessera::sweep {

namespace {

constexpr std::size_t kLongestJobName = 46;
constexpr std::size_t kIdLength = 12;
// "--" twice less one dash that the slug's end never has, and "-rJJ-aKK" for repeats and attempts.
constexpr std::size_t kSeparators = 4;
constexpr std::size_t kReserved = 8;

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

}  // namespace

Point normalized(Point point) {
  const std::int64_t device_batch = point.global_batch / std::max<std::int64_t>(1, point.gpus);
  if (point.microbatch_size > device_batch && device_batch > 0)
    point.microbatch_size = device_batch;
  if (point.sharding_strategy == Sharding::hybrid_shard && point.hybrid_group == point.gpus) {
    point.sharding_strategy = Sharding::full_shard;
  }
  if (point.gpus == 1) {
    point.sharding_strategy = Sharding::no_shard;
    if (point.mixed_precision == MixedPrecision::pure)
      point.mixed_precision = MixedPrecision::default_;
  }
  if (point.sharding_strategy != Sharding::hybrid_shard) point.hybrid_group = 0;
  point.checkpointing_blocks = memory::usual_blocks(
      point.activation_checkpointing, point.model.n_layers, point.checkpointing_blocks);
  if (!memory::can_fuse_gelu(point.model)) point.fused_gelu = false;
  if (is_f32(point.precision)) point.mixed_precision = MixedPrecision::default_;
  if (point.gpu == "cpu") {
    // Minima in seconds and free orders of summation are a GPU's: a CPU run is the same either way.
    point.exact_steps = false;
    point.deterministic = false;
  } else {
    point.threads = 0;
  }
  return point;
}

std::string point_id(const Point& point) {
  return sha256_hex(canonical_json(point)).substr(0, kIdLength);
}

std::string project_fault(std::string_view project) {
  if (project.empty()) return "is empty";
  if (project.size() > 16) return "is longer than 16 characters";
  if (project.find("--") != std::string_view::npos)
    return "holds '--', which separates the parts of a run's name";
  for (const char c : project) {
    if (!is_lower_or_digit(c) && c != '-') return fmt::format("holds '{}'", c);
  }
  if (project.front() < 'a' || project.front() > 'z') return "does not begin with a letter";
  if (project.back() == '-') return "ends in '-'";
  return {};
}

std::string slug(std::string_view label, const Point& point, std::string_view project) {
  std::string text;
  for (const char c : fmt::format("{}-s{}-{}g", label, point.seq_len, point.gpus)) {
    const char small = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (is_lower_or_digit(small)) {
      text += small;
    } else if (!text.empty() && text.back() != '-') {
      text += '-';
    }
  }
  text.resize(std::min(text.size(),
                       kLongestJobName - project.size() - kSeparators - kIdLength - kReserved));
  while (!text.empty() && text.back() == '-') text.pop_back();
  return text;
}

std::string run_name(std::string_view project, std::string_view slug, std::string_view id,
                     int repeat) {
  std::string name = fmt::format("{}--{}-{}", project, slug, id);
  if (repeat > 1) name += fmt::format("-r{}", repeat);
  return name;
}

std::string job_name(std::string_view run, int attempt) {
  return attempt > 1 ? fmt::format("{}-a{}", run, attempt) : std::string(run);
}

}  // namespace tessera::sweep
