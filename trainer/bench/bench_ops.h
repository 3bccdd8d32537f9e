// SPDX-License-Identifier: Apache-2.0
// How fast each operation runs on a device, beside a plain copy and a plain matrix product:
// `trainer bench-ops`.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "trainer/bench/bench_arena.h"
#include "trainer/selftest/cases.h"

namespace tessera::trainer {

using BenchShape = test::DecoderShape;

// One operation of a case that is marked for measuring.
struct BenchEntry {
  const test::Case* from = nullptr;
  test::Case::Timed timed;

  // Returns the operations up to the one that is measured, which is the last.
  std::vector<Op> build(BenchArena& arena) const;
};

// Returns what `cases` mark, those in f32 first. The entries refer to `cases`.
std::vector<BenchEntry> bench_entries(const std::vector<test::Case>& cases);

struct BenchResult {
  std::string op;  // op_name()
  std::string variant;
  DType dtype = DType::f32;
  double seconds = 0;  // of one, the best of three rows of them
  double bytes = 0;    // read and written at least
  double matmul_flops = 0;
  std::string label() const;  // "gemm dW"
};

// What the others are compared with.
struct BenchReference {
  double copy_bytes_per_s = 0;  // read + written
  double gemm_flops_per_s = 0;  // f32; on a GPU bf16
};

// Bytes of the plain copy: far more than caches hold, and on a GPU long enough that its launch does
// not count.
inline constexpr std::int64_t kCopyBytes = std::int64_t{128} << 20;
inline constexpr std::int64_t kGpuCopyBytes = std::int64_t{1} << 30;
std::int64_t copy_bytes(const Device& device);

// Sets up the entries' memory on a new device and runs them: first the copy, then each operation
// for about `seconds`, once what comes before it in its case has run. `copied` gets the copy's
// rate, `each` every result as it is there. Error(host_oom, oom) if the device has no room for the
// largest entry.
void bench_operations(Device& device, const std::vector<BenchEntry>& entries, double seconds,
                      const std::function<void(double bytes_per_s)>& copied,
                      const std::function<void(const BenchResult&)>& each);

struct BenchOptions {
  bool gpu = false;  // else the CPU
  int threads = 1;
  BenchShape shape;
  bool json = false;
  double seconds = 0.15;  // of each operation
  double gemm_seconds = 1.5;
};

// The whole of it: a table for `people` line by line, and if asked for one JSON object to `out` at
// the end. Error as open_gpu.
void bench(const BenchOptions& options, std::FILE* out, std::FILE* people);

}  // namespace tessera::trainer
