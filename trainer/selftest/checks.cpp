// Operations and attention, each against another way to compute them.
#include "trainer/selftest/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "lib/base/error.h"
#include "trainer/device/gpu.h"
#include "trainer/selftest/cases.h"
#include "trainer/selftest/run_case.h"

namespace tessera::trainer::selftest_checks {

using namespace test;

namespace {

// Memory of the device for one case after another.
class CaseMemory {
 public:
  CaseMemory(Device& device, std::int64_t bytes)
      : base_(device.allocate(Pool::device, bytes)), bytes_(bytes) {}

  void clear() { used_ = 0; }
  std::byte* operator()(std::int64_t bytes) {
    constexpr std::int64_t kAlignment = 256;
    std::byte* const begin = base_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (used_ > bytes_) throw Error(ExitCode::oom, "--selftest", "a case needs more memory");
    return begin;
  }

 private:
  std::byte* base_;
  std::int64_t bytes_;
  std::int64_t used_ = 0;
};

constexpr std::int64_t kCaseBytes = std::int64_t{1} << 30;
constexpr std::int64_t kSmallBytes = 200'000;  // of all tensors of a small case in f32

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

std::unique_ptr<Device> device_under_test(const SelftestOptions& options, bool plain) {
  if (!options.gpu) return cpu_device(options.threads);
  return open_gpu({.ordinal = 0, .deterministic = true, .use_cudnn = !plain, .choice_cache = {}});
}

void check_operations(const SelftestOptions& options, Report& report) {
  const auto device = device_under_test(options);
  CaseMemory memory(*device, kCaseBytes);
  const auto allocate = [&](std::int64_t bytes) { return memory(bytes); };
  for (const Case& c : cases()) {
    if (options.small && case_bytes(c, DType::f32) > kSmallBytes) continue;
    const Outcome reference = run_case(c, c.has_f64 ? DType::f64 : DType::f32);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      memory.clear();
      const Outcome outcome = run_case(c, dtype, *device, allocate, {}, Seal::no);
      const double allowed = dtype == DType::f32 ? c.f32_tolerance : c.bf16_tolerance;
      double worst = 0;
      std::string where;
      for (const std::string& name : outcome.compared) {
        if (!c.has_f64 && dtype == DType::bf16 && name == "param") continue;
        const auto expected = reference.values.find(name);
        if (expected == reference.values.end()) continue;
        const double difference = distance(outcome.values.at(name), expected->second);
        if (difference <= worst) continue;
        worst = difference;
        where = name;
      }
      const std::string what = fmt::format("{} {}", c.name, to_text(dtype));
      if (outcome.overrun.empty()) {
        report.check(where.empty() ? what : fmt::format("{} ({})", what, where), worst, allowed);
      } else {
        report.check(what, false, "wrote beyond its rows: " + outcome.overrun.front());
      }
    }
  }
}

void check_attention(const SelftestOptions& options, Report& report) {
  const auto fused = device_under_test(options);
  const auto plain = device_under_test(options, true);
  CaseMemory fused_memory(*fused, kCaseBytes);
  CaseMemory plain_memory(*plain, kCaseBytes);
  for (const Case& c : fused_attention_cases()) {
    if (options.small && case_bytes(c, DType::f32) > kSmallBytes) continue;
    fused_memory.clear();
    plain_memory.clear();
    const Outcome by_cudnn = run_case(
        c, DType::bf16, *fused, [&](std::int64_t n) { return fused_memory(n); }, {}, Seal::no);
    const Outcome by_products = run_case(
        c, DType::bf16, *plain, [&](std::int64_t n) { return plain_memory(n); }, {}, Seal::no);
    for (const std::string& name : by_cudnn.compared) {
      // Both round P and dS to bf16, and the result.
      report.check(fmt::format("cuDNN against products: {} ({})", c.name, name),
                   distance(by_cudnn.values.at(name), by_products.values.at(name)),
                   2 * c.bf16_tolerance);
    }
  }
  if (const auto* gpu = dynamic_cast<const Gpu*>(fused.get()))
    report.say(fmt::format("attention ran by {}\n", gpu->attention()));
}

}  // namespace tessera::trainer::selftest_checks
