// SPDX-License-Identifier: Apache-2.0
#include "trainer/bench/bench_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/text.h"
#include "trainer/device/gpu.h"

namespace tessera::trainer {

namespace {

constexpr double kCopySeconds = 8;  // times those of an operation: all are compared with it
constexpr int kRows = 3;
constexpr Event kBegin = 0;
constexpr Event kEnd = 1;

// Seconds of one call of `issue`, by the device's clock: once to warm up, once to learn how many
// make a row, then rows of which the best counts. Other work on the machine only ever adds.
template <class Issue>
double best_seconds(Device& device, double seconds, int rows, Issue issue) {
  constexpr double kMost = 1e6;
  const auto row = [&](int count) {
    device.record(Stream::compute, kBegin);
    for (int i = 0; i < count; ++i) issue();
    device.record(Stream::compute, kEnd);
    device.host_wait(kEnd);
    return device.seconds(kBegin, kEnd) / count;
  };
  row(1);
  const double one = std::max(row(1), seconds / kMost);
  const int count = std::max(1, static_cast<int>(std::lround(seconds / rows / one)));
  double best = one;
  for (int i = 0; i < rows; ++i) {
    const double taken = row(count);
    // A single call of a short operation is mostly the clock's own.
    best = i == 0 && count > 1 ? taken : std::min(best, taken);
  }
  return best;
}

std::string share(double value, double reference) {
  return reference > 0 ? fmt::format("{:.0f} %", 100 * value / reference) : "";
}

std::string line(const BenchResult& result, const BenchReference& reference) {
  const double bytes_per_s = result.bytes / result.seconds;
  std::string text = fmt::format("{:<26}{:<5}{:>10.3f}{:>10.2f}{:>9}", result.label(),
                                 to_text(result.dtype), 1e3 * result.seconds, 1e-9 * bytes_per_s,
                                 share(bytes_per_s, reference.copy_bytes_per_s));
  if (result.matmul_flops > 0) {
    const double flops_per_s = result.matmul_flops / result.seconds;
    text += fmt::format("{:>10.1f}{:>9}", 1e-9 * flops_per_s,
                        share(flops_per_s, reference.gemm_flops_per_s));
  }
  return text + "\n";
}

void print_now(std::FILE* out, const std::string& text) {
  std::fputs(text.c_str(), out);
  std::fflush(out);
}

std::string head(const BenchOptions& options, const DeviceInfo& device) {
  const BenchShape& shape = options.shape;
  std::string text = device.name;
  if (!options.gpu) {
    text += fmt::format(", {}, {}", counted(options.threads, "thread"), device.vector_isa);
  }
  return text +
         fmt::format(
             "\nd_model {}, heads {}/{} of {}, ffn {}, vocab {}\n{} sequences of {}, {} rows of "
             "logits at once\n",
             shape.d_model, shape.q_heads, shape.kv_heads, shape.head_dim, shape.ffn, shape.vocab,
             shape.sequences, shape.seq, shape.head_rows);
}

nlohmann::ordered_json json_of(const BenchResult& result) {
  nlohmann::ordered_json json;
  json["op"] = result.op;
  if (!result.variant.empty()) json["variant"] = result.variant;
  json["dtype"] = to_text(result.dtype);
  json["seconds"] = result.seconds;
  json["gb_per_s"] = 1e-9 * result.bytes / result.seconds;
  if (result.matmul_flops > 0) json["gflop_per_s"] = 1e-9 * result.matmul_flops / result.seconds;
  return json;
}

}  // namespace

std::string BenchResult::label() const {
  return variant.empty() ? op : fmt::format("{} {}", op, variant);
}

std::int64_t copy_bytes(const Device& device) {
  return device.info().kind == "cpu" ? kCopyBytes : kGpuCopyBytes;
}

std::vector<Op> BenchEntry::build(BenchArena& arena) const {
  std::vector<Op> ops = from->build(arena);
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(timed.op) + 1, ops.end());
  return ops;
}

std::vector<BenchEntry> bench_entries(const std::vector<test::Case>& cases) {
  std::vector<BenchEntry> entries;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const test::Case& c : cases) {
      for (const test::Case::Timed& timed : c.timed) {
        if (timed.dtype == dtype) entries.push_back({.from = &c, .timed = timed});
      }
    }
  }
  return entries;
}

void bench_operations(Device& device, const std::vector<BenchEntry>& entries, double seconds,
                      const std::function<void(double bytes_per_s)>& copied,
                      const std::function<void(const BenchResult&)>& each) {
  // First what they need, at an address that is never read or written.
  std::int64_t bytes = 2 * copy_bytes(device);
  std::int64_t workspace_bytes = 0;
  for (const BenchEntry& entry : entries) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address, not a place
    BenchArena arena(reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20), entry.timed.arena);
    for (const Op& op : entry.build(arena))
      workspace_bytes = std::max(workspace_bytes, device.workspace_bytes(op));
    for (const Op& op : arena.fills())
      workspace_bytes = std::max(workspace_bytes, device.workspace_bytes(op));
    bytes = std::max(bytes, arena.used_bytes());
  }
  const std::int64_t there = device.info().memory_bytes;
  if (there > 0 && bytes + workspace_bytes > there) {
    throw Error(device.info().kind == "cpu" ? ExitCode::host_oom : ExitCode::oom,
                "trainer bench-ops",
                fmt::format("{:.2f} GiB are needed, the device has {:.2f} GiB",
                            static_cast<double>(bytes + workspace_bytes) / (1 << 30),
                            static_cast<double>(there) / (1 << 30)),
                "a smaller shape");
  }
  // One entry after the other has the memory for itself.
  std::byte* base = device.allocate(Pool::device, bytes + workspace_bytes);
  struct Made {
    std::unique_ptr<BenchArena> arena;
    std::vector<Op> ops;
  };
  std::vector<Made> made;
  std::vector<Op> all;
  for (const BenchEntry& entry : entries) {
    Made& one = made.emplace_back(std::make_unique<BenchArena>(base, entry.timed.arena));
    one.ops = entry.build(*one.arena);
    all.insert(all.end(), one.arena->fills().begin(), one.arena->fills().end());
    all.insert(all.end(), one.ops.begin(), one.ops.end());
  }
  device.prepare(all, {base + bytes, static_cast<std::size_t>(workspace_bytes)});
  device.seal();

  const double copy_s = best_seconds(device, kCopySeconds * seconds, 3 * kRows, [&] {
    device.copy(Stream::compute, base + copy_bytes(device), base, copy_bytes(device));
  });
  copied(2 * static_cast<double>(copy_bytes(device)) / copy_s);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto& [arena, ops] = made[i];
    arena->upload(device);
    for (const Op& fill : arena->fills()) device.run(Stream::compute, fill, {});
    for (const Op& op : ops) device.run(Stream::compute, op, {});
    const Op& measured = ops.back();
    const double one =
        best_seconds(device, seconds, kRows, [&] { device.run(Stream::compute, measured, {}); });
    const Cost needed = cost(measured);
    each({.op = op_name(measured),
          .variant = entries[i].timed.variant,
          .dtype = entries[i].timed.dtype,
          .seconds = one,
          .bytes = static_cast<double>(needed.bytes),
          .matmul_flops = needed.matmul_flops});
  }
}

void bench(const BenchOptions& options, std::FILE* out, std::FILE* people) {
  const std::unique_ptr<Gpu> gpu =
      options.gpu ? open_gpu({.ordinal = 0, .choice_cache = default_choice_cache()}) : nullptr;
  const std::unique_ptr<Device> cpu = gpu ? nullptr : cpu_device(options.threads);
  Device& device = gpu ? *gpu : *cpu;
  print_now(people, head(options, device.info()));
  BenchReference reference;
  reference.gemm_flops_per_s =
      1e12 * (gpu ? gpu->measure_gemm_tflops(Precision::amp_bf16, options.gemm_seconds)
                  : measure_gemm_peak(options.threads, options.gemm_seconds).tflops);
  nlohmann::ordered_json operations = nlohmann::ordered_json::array();
  const std::vector<test::Case> cases = test::decoder_cases(options.shape);
  bench_operations(
      device, bench_entries(cases), options.seconds,
      [&](double bytes_per_s) {
        reference.copy_bytes_per_s = bytes_per_s;
        print_now(
            people,
            fmt::format(
                "plain copy: {:.2f} GB/s, read and written, {} MiB from memory to "
                "memory\n  (what fits the caches may exceed it)\n"
                "plain GEMM: {:.1f} GFLOP/s, {}\n\n"
                "{:<26}{:<5}{:>10}{:>10}{:>9}{:>10}{:>9}\n",
                1e-9 * bytes_per_s, copy_bytes(device) >> 20, 1e-9 * reference.gemm_flops_per_s,
                gpu ? "bf16, the better of 4096 and 8192 square"
                    : "f32, the best of 1024 to 4096 square\n  (bf16 is computed in f32 here)",
                "operation", "dtype", "ms", "GB/s", "of copy", "GFLOP/s", "of GEMM"));
      },
      [&](const BenchResult& result) {
        operations.push_back(json_of(result));
        print_now(people, line(result, reference));
      });
  if (!options.json) return;
  nlohmann::ordered_json all;
  all["device"] = device.info().name;
  if (!options.gpu) all["threads"] = options.threads;
  all["copy_gb_per_s"] = 1e-9 * reference.copy_bytes_per_s;
  all["gemm_gflop_per_s"] = 1e-9 * reference.gemm_flops_per_s;
  all["operations"] = std::move(operations);
  print_now(out, all.dump(2) + "\n");
}

}  // namespace tessera::trainer
