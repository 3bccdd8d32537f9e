// SPDX-License-Identifier: Apache-2.0
// Operations and attention, each against another way to compute them.
#include "trainer/selftest/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "trainer/device/gpu.h"
#include "trainer/selftest/cases.h"
#include "trainer/selftest/run_case.h"

namespace tessera::trainer::selftest_checks {

using namespace test;

namespace {

// Memory of the device for one case after another, and a workspace for all. Apart: each tensor has
// an allocation of its own, so that a checker sees the first byte beyond it.
class CaseMemory {
 public:
  CaseMemory(Device& device, bool apart)
      : device_(device),
        apart_(apart),
        workspace_(device.allocate(Pool::device, kWorkspaceBytes)),
        base_(apart ? nullptr : device.allocate(Pool::device, kCaseBytes)) {}

  void clear() { used_ = 0; }
  std::byte* operator()(std::int64_t bytes) {
    if (apart_) return device_.allocate(Pool::device, bytes);
    constexpr std::int64_t kAlignment = 256;
    std::byte* const begin = base_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (used_ > kCaseBytes)
      throw Error(ExitCode::oom, "trainer selftest", "a case needs more memory");
    return begin;
  }
  std::span<std::byte> workspace() const {
    return {workspace_, static_cast<std::size_t>(kWorkspaceBytes)};
  }

 private:
  static constexpr std::int64_t kCaseBytes = std::int64_t{256} << 20;
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{192} << 20;

  Device& device_;
  bool apart_;
  std::byte* workspace_;
  std::byte* base_;
  std::int64_t used_ = 0;
};

// A device with memory for cases.
struct Bench {
  Bench(const SelftestOptions& options, Way way)
      : device(device_under_test(options, way)), memory(*device, options.small) {}
  Outcome run(const Case& c, DType dtype) {
    memory.clear();
    return run_case(
        c, dtype, *device, [this](std::int64_t bytes) { return memory(bytes); }, {}, Seal::no,
        memory.workspace());
  }
  // After an access to a wrong address a GPU refuses all that a process asks of it.
  bool is_dead() const {
    try {
      device->record(Stream::compute, 0);
      device->host_wait(0);
      return false;
    } catch (const std::exception&) {
      return true;
    }
  }
  std::unique_ptr<Device> device;
  CaseMemory memory;
};

// Goes through the cases of a part by their numbers, from 1 on: whoever watches a GPU that hangs
// knows where, and can go on behind it.
class Numbers {
 public:
  explicit Numbers(const SelftestOptions& options) : options_(options) {}
  // Whether the next case is to be run.
  bool next(std::string_view name) {
    if (++number_ < options_.from) return false;
    if (options_.gpu) {
      std::fputs(fmt::format("case {} {}\n", number_, name).c_str(), stderr);
      std::fflush(stderr);
    }
    return true;
  }
  // Tells of it, if the GPU can go no further.
  bool ended(const Bench& bench, std::string_view part, Report& report) const {
    if (!options_.gpu || !bench.is_dead()) return false;
    report.check(part, false,
                 fmt::format("the GPU is in error after case {}; the cases behind it were not run",
                             number_));
    return true;
  }

 private:
  const SelftestOptions& options_;
  int number_ = 0;
};

constexpr std::int64_t kSmallBytes = 200'000;  // of all tensors of a small case in f32

// The largest difference of what is compared, and of what.
struct Worst {
  double difference = 0;
  std::string where;
};
Worst worst_of(const Case& c, DType dtype, const Outcome& outcome, const Outcome& reference) {
  Worst worst;
  for (const std::string& name : outcome.compared) {
    if (!c.has_f64 && dtype == DType::bf16 && name == "param") continue;
    const auto expected = reference.values.find(name);
    if (expected == reference.values.end()) continue;
    const double difference = distance(outcome.values.at(name), expected->second);
    if (difference > worst.difference) worst = {difference, name};
  }
  return worst;
}

}  // namespace

void Report::say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

void Report::line(bool holds, std::string_view what, std::string_view figures) {
  ++counts_.all;
  if (holds) ++counts_.held;
  say(fmt::format("{} {}: {}\n", holds ? "ok  " : "FAIL", what, figures));
}

void Report::check(std::string_view what, double difference, double allowed) {
  // Not the other way round: NaN must not hold.
  line(difference <= allowed, what, fmt::format("{:.2e} of {:.2e}", difference, allowed));
}

void Report::check(std::string_view what, bool holds, std::string_view otherwise) {
  line(holds, what, holds ? "equal" : otherwise);
}

std::unique_ptr<Device> device_under_test(const SelftestOptions& options, Way way) {
  if (!options.gpu) return cpu_device(options.threads);
  return open_gpu({.ordinal = 0,
                   .deterministic = way == Way::same_bits,
                   .use_cudnn = way != Way::without_cudnn,
                   .choice_cache = {}});
}

void check_operations(const SelftestOptions& options, Report& report) {
  Bench bench(options, Way::same_bits);
  Numbers numbers(options);
  for (const Case& c : cases()) {
    if (options.small && case_bytes(c, DType::f32) > kSmallBytes) continue;
    if (!numbers.next(c.name)) continue;
    const Outcome reference = run_case(c, c.has_f64 ? DType::f64 : DType::f32);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::string what = fmt::format("{} {}", c.name, to_text(dtype));
      try {
        const Outcome outcome = bench.run(c, dtype);
        const Worst worst = worst_of(c, dtype, outcome, reference);
        if (!outcome.overrun.empty()) {
          report.check(what, false, "wrote beyond its rows: " + outcome.overrun.front());
          continue;
        }
        report.check(worst.where.empty() ? what : fmt::format("{} ({})", what, worst.where),
                     worst.difference, dtype == DType::f32 ? c.f32_tolerance : c.bf16_tolerance);
      } catch (const std::exception& error) {
        report.check(what, false, error.what());
        if (numbers.ended(bench, "operations", report)) return;
      }
    }
  }
}

void check_attention(const SelftestOptions& options, Report& report) {
  Bench plain(options, Way::without_cudnn);
  Numbers numbers(options);
  for (const Way way : {Way::benchmark, Way::same_bits}) {
    Bench fused(options, way);
    const char* const how = way == Way::same_bits ? "cuDNN, same bits" : "cuDNN";
    bool is_run = false;
    for (const Case& c : fused_attention_cases()) {
      if (options.small && case_bytes(c, DType::f32) > kSmallBytes) continue;
      if (!numbers.next(fmt::format("{}: {}", how, c.name))) continue;
      is_run = true;
      try {
        const Outcome by_cudnn = fused.run(c, DType::bf16);
        const Outcome by_products = plain.run(c, DType::bf16);
        for (const std::string& name : by_cudnn.compared) {
          // Both round P and dS to bf16, and the result.
          report.check(fmt::format("{} against products: {} ({})", how, c.name, name),
                       distance(by_cudnn.values.at(name), by_products.values.at(name)),
                       2 * c.bf16_tolerance);
        }
      } catch (const std::exception& error) {
        report.check(fmt::format("{}: {}", how, c.name), false, error.what());
        if (numbers.ended(fused, "attention", report)) return;
      }
    }
    const auto* const gpu = dynamic_cast<const Gpu*>(fused.device.get());
    if (gpu == nullptr || !is_run) continue;
    for (const GpuChoice& choice : gpu->choices()) {
      if (choice.op == "attention")
        report.say(fmt::format("     {}: {} ({})\n", choice.shape, choice.choice, choice.from));
    }
    // Products against products would agree, too.
    report.check(fmt::format("{} ran", how), gpu->attention().starts_with("cudnn"),
                 "attention ran by " + gpu->attention());
  }
}

}  // namespace tessera::trainer::selftest_checks
