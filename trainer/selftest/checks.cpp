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

// Memory of the device for one case after another, and a workspace for all. Zeroed once: kernels
// may read what they then leave out, and a checker wants that to have been written.
class CaseMemory {
 public:
  explicit CaseMemory(Device& device)
      : base_(device.allocate(Pool::device, kCaseBytes + kWorkspaceBytes)) {
    const std::vector<std::byte> zeros(kZeroBytes);
    for (std::int64_t at = 0; at < kCaseBytes + kWorkspaceBytes; at += kZeroBytes)
      device.copy(Stream::compute, base_ + at, zeros.data(), kZeroBytes);
    device.record(Stream::compute, 0);
    device.host_wait(0);
  }

  void clear() { used_ = 0; }
  std::byte* operator()(std::int64_t bytes) {
    constexpr std::int64_t kAlignment = 256;
    std::byte* const begin = base_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (used_ > kCaseBytes) throw Error(ExitCode::oom, "--selftest", "a case needs more memory");
    return begin;
  }
  std::span<std::byte> workspace() const {
    return {base_ + kCaseBytes, static_cast<std::size_t>(kWorkspaceBytes)};
  }

 private:
  static constexpr std::int64_t kCaseBytes = std::int64_t{256} << 20;
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{128} << 20;
  static constexpr std::int64_t kZeroBytes = std::int64_t{16} << 20;

  std::byte* base_;
  std::int64_t used_ = 0;
};

// A device with memory for cases.
struct Bench {
  Bench(const SelftestOptions& options, Way way)
      : device(device_under_test(options, way)), memory(*device) {}
  Outcome run(const Case& c, DType dtype) {
    memory.clear();
    return run_case(
        c, dtype, *device, [this](std::int64_t bytes) { return memory(bytes); }, {}, Seal::no,
        memory.workspace());
  }
  std::unique_ptr<Device> device;
  CaseMemory memory;
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
  for (const Case& c : cases()) {
    if (options.small && case_bytes(c, DType::f32) > kSmallBytes) continue;
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
      }
    }
  }
}

void check_attention(const SelftestOptions& options, Report& report) {
  Bench plain(options, Way::without_cudnn);
  for (const Way way : {Way::benchmark, Way::same_bits}) {
    Bench fused(options, way);
    const char* const how = way == Way::same_bits ? "cuDNN, same bits" : "cuDNN";
    for (const Case& c : fused_attention_cases()) {
      if (options.small && case_bytes(c, DType::f32) > kSmallBytes) continue;
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
      }
    }
    const auto* const gpu = dynamic_cast<const Gpu*>(fused.device.get());
    if (gpu == nullptr) continue;
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
