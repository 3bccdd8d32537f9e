// What executes operations: the CPU (the reference, deterministic) or a GPU. A device knows no
// model.
//
// Life: allocate the pools of the plan -> prepare every operation of the run -> seal -> steps.
// After seal nothing is allocated or prepared. All calls come from one thread; nothing in a step
// blocks the host but host_wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trainer/device/ops.h"

namespace tessera::trainer {

enum class Phase : std::uint8_t { forward, recompute, backward, update };

// Which part of the step an operation belongs to, for profiles and traces.
struct Tag {
  std::int16_t unit = 0;
  std::int16_t microbatch = 0;
  Phase phase = Phase::forward;
};

using Event = std::uint16_t;  // index into a table of kEvents
inline constexpr Event kEvents = 256;

struct DeviceInfo {
  std::string kind;  // "cpu" or "cuda"
  std::string name;  // as the driver or the kernel reports it: "AMD EPYC 9554", "NVIDIA H200"
  std::int64_t memory_bytes = 0;
  int threads = 0;         // CPU only
  std::string vector_isa;  // CPU only: "x86-64-v2", "avx2", "avx512"
  std::string blas;        // "OpenBLAS 0.3.21 SkylakeX openmp"
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Set-up. allocate: 256-byte aligned, lives as long as the device, content undefined; once per
  // pool of the plan; Error(oom or host_oom) if it cannot be had.
  virtual std::byte* allocate(Pool pool, std::int64_t bytes) = 0;
  // Bytes of scratch that prepare needs for `op` alone; the plan holds the largest once.
  virtual std::int64_t workspace_bytes(const Op& op) const = 0;
  // All that will ever be run, the short last microbatch too. Error(unsupported) for what the
  // device cannot do, and if `workspace` is too small. A GPU wants the same workspace in every
  // call; it runs some of the operations to load their kernels, and times algorithms in its
  // memory: what its pools hold is undefined afterwards.
  virtual void prepare(std::span<const Op> all, std::span<std::byte> workspace) = 0;
  virtual void seal() = 0;

  // A step. Work of one stream runs in order; streams are ordered by events only.
  virtual void run(Stream stream, const Op& op,
                   Tag tag) = 0;  // Error(internal) if sealed and not prepared
  virtual void copy(Stream stream, void* dst, const void* src, std::int64_t bytes) = 0;
  virtual void record(Stream stream, Event event) = 0;
  virtual void wait(Stream stream, Event event) = 0;

  // For the step loop alone.
  virtual void host_wait(Event event) = 0;
  virtual double seconds(Event from, Event to) = 0;  // between two recorded events
};

// Executes each operation at once, in the order of issue: streams are names, record and wait are
// only checked. threads: of OpenMP and OpenBLAS, 1 or more.
std::unique_ptr<Device> cpu_device(int threads);

// The highest rate of f32 GEMMs here (docs/formulas.md, "Peaks"): the best of several square ones
// on random data, for about `seconds`.
struct GemmPeak {
  double tflops = 0;
  double cpu_share =
      0;  // CPU time that the threads got / that they wanted: below 1, others ran here
  // "measured: f32 GEMM, 2 threads", and what a busy machine did to it.
  std::string source(int threads) const;
  bool is_undisturbed() const { return cpu_share >= 0.9; }
};
GemmPeak measure_gemm_peak(int threads, double seconds);

// The OpenBLAS core type (OPENBLAS_CORETYPE, read when the program starts) that suits a CPU of this
// vector ISA, if `chosen` was made for older ones; else "". Without arguments: for this CPU and
// what the library has chosen here.
std::string better_blas_core(std::string_view chosen, std::string_view vector_isa);
std::string better_blas_core();

}  // namespace tessera::trainer
