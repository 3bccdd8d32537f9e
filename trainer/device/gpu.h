// SPDX-License-Identifier: Apache-2.0
// A GPU, which is a device with software, choices, memory figures and clocks. No CUDA header: a
// trainer that was built without CUDA has these functions too, and they say so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/settings.h"
#include "trainer/device/device.h"

namespace tessera::trainer {

// Versions as "13.0" or "9.19.0"; empty: absent.
struct GpuSoftware {
  std::string driver;  // "580.95.05"; "CUDA 13.0" if only that is known
  std::string cuda;    // the trainer's run time
  std::string cublaslt;
  std::string cudnn;
};

struct GpuFacts {
  std::string pci_bus_id;
  int multiprocessors = 0;
  int compute_capability = 0;  // 90 for 9.0
  std::int64_t l2_bytes = 0;
  std::optional<double> sm_clock_max_mhz, power_limit_w;
};

// How the device executes an operation for which it has a choice: the algorithm of a GEMM, the
// engine of attention.
struct GpuChoice {
  std::string op;                 // op_name()
  std::string shape;              // "m4096 n12288 k4096 tn bf16>bf16 bias"
  std::string choice;             // "algorithm 66, tile 128x256, ...": the library's own numbers
  std::string from;               // "first", "timed", "cached", "fixed"
  std::optional<double> seconds;  // its measured time
};

// The driver's figures of clocks and power over a period, by samples.
struct GpuWatch {
  std::int64_t samples = 0;
  std::optional<double> sm_clock_min_mhz, sm_clock_mean_mhz;
  std::optional<double> power_mean_w, power_max_w;
  std::optional<double> temperature_max_c;
  // The share of sampled moments at which the GPU had no work left when the host brought more.
  std::optional<double> idle_share;
  std::vector<std::string> throttled;  // reasons seen, "power", "thermal", ...; sorted
  // The largest number of other processes that computed on the GPU at a time.
  std::optional<std::int64_t> other_processes;
};

class Gpu : public Device {
 public:
  virtual GpuSoftware software() const = 0;
  virtual GpuFacts facts() const = 0;
  // The choices made by prepare.
  virtual std::vector<GpuChoice> choices() const = 0;
  // How attention runs, in a word: "cudnn", "gemm" or, if operations differ, "cudnn+gemm".
  virtual std::string attention() const = 0;
  // Hexadecimal digits that stand for the algorithms of all GEMMs: equal digits, equal algorithms.
  virtual std::string choices_hash() const = 0;
  // Lines for people: what preparation could not do as well as it might.
  virtual std::vector<std::string> notes() const = 0;
  // Bytes in use on the GPU beyond the pools: context, libraries, other processes.
  virtual std::int64_t unplanned_bytes() const = 0;
  // Returns the rate of large square GEMMs on random data, measured for about `seconds`: in bf16,
  // or in what `precision` multiplies in. Call it before prepare. 0 if there is no memory for it.
  virtual double measure_gemm_tflops(Precision precision, double seconds) = 0;

  // Samples the driver's figures in a thread of its own from watch() to watched(). Without NVML,
  // the driver's library for it, the result has no samples.
  virtual void watch() = 0;
  virtual GpuWatch watched() = 0;
};

struct GpuOptions {
  int ordinal = 0;             // among the GPUs that the process may see
  bool tf32 = false;           // f32 products may be rounded to TF32
  bool deterministic = false;  // attention's backward pass; no timed choices
  bool use_cudnn = true;       // false: always unfused attention, to check cuDNN against
  // The file that keeps timed choices from run to run; empty: none is kept.
  std::filesystem::path choice_cache;
};

// Opens a GPU. Error(unsupported) if there is none, a library is missing or the trainer was built
// without CUDA; the error says why and what would help. Error(wrong_device) if the GPU cannot be
// used.
std::unique_ptr<Gpu> open_gpu(const GpuOptions& options);

// The GPUs of this machine and the trainer's code for them, found without opening a GPU.
struct GpuPresence {
  bool is_built = false;           // this trainer has a CUDA device
  std::vector<std::string> names;  // of the GPUs that the process may see
  std::vector<std::int64_t> memory_bytes;
  std::string why_none;    // if names is empty
  std::string cuda;        // the run time's version
  bool has_cudnn = false;  // was built with it
  // The architectures that this trainer has code for (lib/base/cuda_architectures.h): "80",
  // "90-real".
  std::vector<std::string> architectures;
};
GpuPresence gpu_presence();

// Returns where choices are kept (docs/formats.md, "GEMM choices"); empty without a home.
std::filesystem::path default_choice_cache();

}  // namespace tessera::trainer
