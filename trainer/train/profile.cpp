// SPDX-License-Identifier: Apache-2.0
#include "trainer/train/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "lib/runlog/keys.h"

namespace tessera::trainer {

namespace {

namespace keys = runlog::keys;
using runlog::Json;

// Operations in one record: the longest takes about 190 bytes.
constexpr std::size_t kOperationsOfRecord = 16;

double seconds_of(const Profile& profile, OpClass kind) {
  double sum = 0;
  for (const OpTotal& total : profile.operations) {
    if (total.kind == kind) sum += total.seconds;
  }
  return sum;
}

// Returns the rest of the steps' time; nothing if streams overlap so far that their sum exceeds it.
double other_seconds(const Profile& profile) {
  double rest = profile.seconds - profile.data_wait_s;
  for (const OpTotal& total : profile.operations) rest -= total.seconds;
  return std::max(rest, 0.0);
}

// Rounds to six digits: a measured time has no more.
double rounded(double value) {
  const std::string text = fmt::format("{:.6g}", value);
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string line(std::string_view name, std::string_view count, double step_s, double share) {
  return fmt::format("{:<32}{:>7}{:>12.3f} ms{:>8.1f} %", name, count, 1e3 * step_s, 100 * share);
}

std::string_view title(OpClass kind) {
  switch (kind) {
    case OpClass::gemm:
      return "GEMM";
    case OpClass::attention:
      return "attention";
    case OpClass::memory_bound:
      return "memory-bound";
    case OpClass::optimizer:
      return "optimizer";
    case OpClass::offload:
      return "offload";
  }
  return "";
}

}  // namespace

std::optional<Profile> profile_steps(Engine& engine, ProfilingDevice& device, std::int64_t last,
                                     const std::atomic<int>& stop) {
  if (!engine.issue(last + 1, stop)) return std::nullopt;
  engine.result(last + 1);
  Profile profile;
  device.begin();
  for (; profile.steps < kProfiledSteps; ++profile.steps) {
    const std::int64_t step = last + 2 + profile.steps;
    if (!engine.issue(step, stop)) {
      device.end();
      return std::nullopt;
    }
    profile.data_wait_s += engine.data_seconds();
    profile.seconds += engine.result(step).seconds;
  }
  profile.operations = device.end();
  return profile;
}

// Shares of the steps' whole time. On a GPU they may sum to more than 1, because streams overlap.
runlog::Budget budget(const Profile& profile) {
  const auto share = [&](double seconds) { return seconds / profile.seconds; };
  return {.gemm = share(seconds_of(profile, OpClass::gemm)),
          .attention = share(seconds_of(profile, OpClass::attention)),
          .memory_bound = share(seconds_of(profile, OpClass::memory_bound)),
          .optimizer = share(seconds_of(profile, OpClass::optimizer)),
          .offload = share(seconds_of(profile, OpClass::offload)),
          .data_wait = share(profile.data_wait_s),
          .other = share(other_seconds(profile))};
}

std::vector<Json> profile_fields(const Profile& profile) {
  const auto steps = static_cast<double>(profile.steps);
  std::vector<Json> records;
  for (const OpTotal& total : profile.operations) {
    if (records.empty() || records.back()[keys::operations].size() == kOperationsOfRecord) {
      Json& record = records.emplace_back();
      record[keys::part] = records.size();
      record[keys::steps] = profile.steps;
      record[keys::step_s] = rounded(profile.seconds / steps);
      record[keys::data_wait_s] = rounded(profile.data_wait_s / steps);
      record[keys::operations] = Json::array();
    }
    Json operation;
    operation[keys::op] = total.name;
    if (!total.phase.empty()) operation[keys::phase] = total.phase;
    operation[keys::class_] = to_text(total.kind);
    operation[keys::count] = total.count / profile.steps;
    operation[keys::seconds] = rounded(total.seconds / steps);
    if (total.seconds > 0) {
      operation[keys::gb_per_s] = rounded(1e-9 * total.bytes / total.seconds);
      if (total.matmul_flops > 0)
        operation[keys::gflop_per_s] = rounded(1e-9 * total.matmul_flops / total.seconds);
    }
    records.back()[keys::operations].push_back(std::move(operation));
  }
  return records;
}

std::string profile_table(const Profile& profile) {
  const auto steps = static_cast<double>(profile.steps);
  const auto add = [&](std::string& text, std::string_view name, std::string_view count,
                       double seconds) {
    text += line(name, count, seconds / steps, seconds / profile.seconds);
  };
  std::string text = fmt::format(
      "Profile of {} steps after the measured ones, {:.3f} ms each\n{:<32}{:>7}{:>15}{:>10}{:>10}"
      "{:>10}\n",
      profile.steps, 1e3 * profile.seconds / steps, "", "times", "a step", "share", "GB/s",
      "GFLOP/s");
  for (const auto& [kind, name] : Names<OpClass>::table) {
    const double sum = seconds_of(profile, kind);
    add(text, title(kind), "", sum);
    text += "\n";
    std::vector<OpTotal> of_class;
    for (const OpTotal& total : profile.operations) {
      if (total.kind == kind) of_class.push_back(total);
    }
    std::ranges::stable_sort(of_class, std::ranges::greater{}, &OpTotal::seconds);
    for (const OpTotal& total : of_class) {
      add(text, fmt::format("  {}{}{}", total.name, total.phase.empty() ? "" : ", ", total.phase),
          std::to_string(total.count / profile.steps), total.seconds);
      if (total.seconds > 0) {
        text += fmt::format("{:>10.2f}", 1e-9 * total.bytes / total.seconds);
        if (total.matmul_flops > 0)
          text += fmt::format("{:>10.1f}", 1e-9 * total.matmul_flops / total.seconds);
      }
      text += "\n";
    }
  }
  add(text, "data wait", "", profile.data_wait_s);
  text += "\n";
  add(text, "other", "", other_seconds(profile));
  return text + "\n";
}

}  // namespace tessera::trainer
