// SPDX-License-Identifier: Apache-2.0
// The parts of a self-test, and how they report.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "trainer/device/device.h"
#include "trainer/selftest/options.h"

namespace tessera::trainer::selftest_checks {

struct Counts {
  int held = 0;
  int all = 0;
};

class Report {
 public:
  explicit Report(std::FILE* out) : out_(out) {}

  void say(std::string_view text);
  // A difference that may be at most `allowed`; NaN is more. One line.
  void check(std::string_view what, double difference, double allowed);
  void check(std::string_view what, bool holds, std::string_view otherwise);
  Counts counts() const { return counts_; }

 private:
  void line(bool holds, std::string_view what, std::string_view figures);

  std::FILE* out_;
  Counts counts_;
};

// How a GPU is opened: to give the same bits each time, as benchmarks use it, or so without cuDNN.
enum class Way : std::uint8_t { same_bits, benchmark, without_cudnn };

// The device to check; a CPU has one way.
std::unique_ptr<Device> device_under_test(const SelftestOptions& options, Way way);

void check_attention(const SelftestOptions& options, Report& report);
void check_operations(const SelftestOptions& options, Report& report);
void check_training(const SelftestOptions& options, Report& report);
void check_bits(const SelftestOptions& options, Report& report);

}  // namespace tessera::trainer::selftest_checks
