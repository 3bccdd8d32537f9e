// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/trainers/cpu_peak.h"

#include <fmt/format.h>

#include "lib/base/clock.h"
#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/base/text.h"
#include "lib/base/tree.h"
#include "lib/ledger/state.h"

namespace tessera::submit {

namespace {

constexpr int kTries = 3;
constexpr double kLong_s = 8;  // after which there is no other try

// One JSON object that the trainer prints, or nothing if it does not.
std::optional<Value> ask(const std::vector<std::string>& command) {
  const CommandResult result = run_command(command);
  if (result.exit_code != 0) return std::nullopt;
  try {
    return parse_json(result.out, "trainer");
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string text_of(const Value& value, std::string_view key) {
  const Value* member = value.find(key);
  return member != nullptr && member->kind == Value::Kind::scalar ? member->text : "";
}

ledger::CpuPeakKey key_of(const Capabilities& can, int threads) {
  return {.cpu = can.cpu, .threads = threads, .blas = can.blas};
}

}  // namespace

std::optional<sweep::Peak> cpu_peak(const std::filesystem::path& trainer, const Capabilities& can,
                                    int threads, const std::function<void()>& measuring,
                                    const std::atomic<bool>& interrupted) {
  const ledger::CpuPeakKey key = key_of(can, threads);
  if (const auto tflops = ledger::cached_cpu_peak(key)) {
    return sweep::Peak{.tflops = *tflops,
                       .source = "measured: f32 GEMM, " + counted(threads, "thread"),
                       .disturbed = {}};
  }
  measuring();
  // On a machine that is busy for a moment, another try may be undisturbed.
  std::optional<Value> measured;
  const double start_s = monotonic_seconds();
  for (int tries = 0; tries < kTries; ++tries) {
    measured = ask({trainer.string(), "--measure-peak", "--threads", std::to_string(threads)});
    if (!measured) return std::nullopt;
    if (text_of(*measured, "undisturbed") == "true" || monotonic_seconds() - start_s > kLong_s)
      break;
    if (interrupted) return std::nullopt;
  }
  const auto tflops = parse_number(text_of(*measured, "tflops"));
  if (!tflops || *tflops <= 0) return std::nullopt;
  // What was measured beside other work is said to be so, and is measured anew the next time.
  if (text_of(*measured, "undisturbed") == "true") ledger::cache_cpu_peak(key, *tflops);
  return sweep::Peak{
      .tflops = *tflops,
      .source = text_of(*measured, "source"),
      .disturbed = from_text<hardware::Disturbance>(text_of(*measured, "disturbed"))};
}

bool forget_cpu_peak(const Capabilities& can, int threads) {
  return ledger::forget_cpu_peak(key_of(can, threads));
}

}  // namespace tessera::submit
