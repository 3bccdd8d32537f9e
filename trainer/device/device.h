// SPDX-License-Identifier: Apache-2.0
// A device executes operations: the CPU (the reference, deterministic) or a GPU. A device knows no
// model.
//
// Life: allocate the pools of the plan -> prepare every operation of the run -> seal -> steps.
// After seal nothing is allocated or prepared. All calls come from one thread; in a step only
// host_wait blocks the host.
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

// The part of the step that an operation belongs to, for profiles and traces.
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

  // Set-up. allocate returns memory aligned to 256 bytes that lives as long as the device; its
  // content is undefined. Called once for each pool of the plan. Error(oom or host_oom) if there is
  // not enough.
  virtual std::byte* allocate(Pool pool, std::int64_t bytes) = 0;
  // Returns the scratch bytes that `op` needs; the plan holds the largest once.
  virtual std::int64_t workspace_bytes(const Op& op) const = 0;
  // Prepares all operations that will ever run, the short last microbatch's too. Error(unsupported)
  // for what the device cannot do, and if `workspace` is too small. A GPU needs the same workspace
  // in every call. It runs some of the operations to load their kernels, and times algorithms in
  // its memory: afterwards the content of its pools is undefined.
  virtual void prepare(std::span<const Op> all, std::span<std::byte> workspace) = 0;
  virtual void seal() = 0;

  // A step. Work of one stream runs in order; only events order streams.
  virtual void run(Stream stream, const Op& op,
                   Tag tag) = 0;  // Error(internal) if sealed and not prepared
  virtual void copy(Stream stream, void* dst, const void* src, std::int64_t bytes) = 0;
  virtual void record(Stream stream, Event event) = 0;
  virtual void wait(Stream stream, Event event) = 0;

  // Only the step loop calls it.
  virtual void host_wait(Event event) = 0;
  virtual double seconds(Event from, Event to) = 0;  // between two recorded events
};

// Makes the CPU device. It executes each operation at once, in the order of issue: streams are only
// names, record and wait are only checked. threads: of OpenMP and OpenBLAS, 1 or more.
std::unique_ptr<Device> cpu_device(int threads);

// The highest rate of f32 GEMMs here (docs/formulas.md, "Peaks"): the best of several square sizes
// on random data, measured for about `seconds`.
struct GemmPeak {
  double tflops = 0;
  double cpu_share =
      0;  // CPU time that the threads got / that they wanted: below 1, others ran here
  // Returns "measured: f32 GEMM, 2 threads", and what a busy machine did to it.
  std::string source(int threads) const;
  bool is_undisturbed() const { return cpu_share >= 0.9; }
};
GemmPeak measure_gemm_peak(int threads, double seconds);

// Returns the OpenBLAS core type that suits a CPU of this vector ISA (OPENBLAS_CORETYPE, read when
// the program starts) if `chosen` was made for older CPUs; otherwise "". Without arguments: for
// this CPU and what the library has chosen here.
std::string better_blas_core(std::string_view chosen, std::string_view vector_isa);
std::string better_blas_core();

}  // namespace tessera::trainer
