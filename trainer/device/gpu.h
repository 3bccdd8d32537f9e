// What a GPU is beyond a device: software, choices, memory, clocks. No CUDA header: a trainer that
// was built without CUDA has these functions too, and says so.
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

// Versions as "13.0", "9.19.0"; empty: not there.
struct GpuSoftware {
  std::string driver;  // "580.95.05", of the machine; "CUDA 13.0" where only that is known
  std::string cuda;    // of the run time that the trainer has
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

// How the device executes an operation that it has a choice for: an algorithm of a matrix product,
// an engine of attention.
struct GpuChoice {
  std::string op;                 // op_name()
  std::string shape;              // "m4096 n12288 k4096 tn bf16>bf16 bias"
  std::string choice;             // "algorithm 66, tile 128x256, ...": the library's own numbers
  std::string from;               // "first", "timed", "cached", "fixed"
  std::optional<double> seconds;  // as timed
};

// What the driver says of clocks and power over a stretch of time, by samples.
struct GpuWatch {
  std::int64_t samples = 0;
  std::optional<double> sm_clock_min_mhz, sm_clock_mean_mhz;
  std::optional<double> power_mean_w, power_max_w;
  std::optional<double> temperature_max_c;
  // Of the moments at which the host came with more work, those at which the GPU had none left.
  std::optional<double> idle_share;
  std::vector<std::string> throttled;  // reasons seen, "power", "thermal", ...; sorted
  // Most processes at a time that computed on the GPU beside this one.
  std::optional<std::int64_t> other_processes;
};

class Gpu : public Device {
 public:
  virtual GpuSoftware software() const = 0;
  virtual GpuFacts facts() const = 0;
  // After prepare.
  virtual std::vector<GpuChoice> choices() const = 0;
  // How attention runs, in a word: "cudnn", "gemm" or, where operations differ, "cudnn+gemm".
  virtual std::string attention() const = 0;
  // Hexadecimal digits that stand for those of matrix products: equal digits, equal algorithms.
  virtual std::string choices_hash() const = 0;
  // Lines for people, of what preparation could not do as well as it might.
  virtual std::vector<std::string> notes() const = 0;
  // What is in use on the GPU beyond the pools: context, libraries, other processes.
  virtual std::int64_t unplanned_bytes() const = 0;
  // The rate of large square products on random data, for about `seconds`: bf16, or what
  // `precision` multiplies in. Before prepare. 0 if there is no memory for it.
  virtual double measure_gemm_tflops(Precision precision, double seconds) = 0;

  // Samples the driver's figures from a thread of its own from watch() to watched(). Without NVML
  // (the driver's library for it) the result has no samples.
  virtual void watch() = 0;
  virtual GpuWatch watched() = 0;
};

struct GpuOptions {
  int ordinal = 0;             // among the GPUs that the process may see
  bool tf32 = false;           // f32 products may be rounded to TF32
  bool deterministic = false;  // attention's backward pass; no timed choices
  bool use_cudnn = true;       // false: attention of matrix products alone, to check cuDNN against
  // Of timed choices from run to run; empty: none is kept.
  std::filesystem::path choice_cache;
};

// Error(unsupported) where there is none or a library is missing, with the reason and what would
// do, and of a trainer that was built without CUDA; Error(wrong_device) where it cannot be used.
std::unique_ptr<Gpu> open_gpu(const GpuOptions& options);

// What the trainer can do here, without opening a GPU.
struct GpuPresence {
  bool is_built = false;           // this trainer has a CUDA device
  std::vector<std::string> names;  // of the GPUs that the process may see
  std::vector<std::int64_t> memory_bytes;
  std::string why_none;    // where names is empty
  std::string cuda;        // the run time's version
  bool has_cudnn = false;  // was built with it
  // That this trainer has code for (lib/base/cuda_architectures.h): "80", "90-real".
  std::vector<std::string> architectures;
};
GpuPresence gpu_presence();

// Where choices are kept (docs/formats.md, "GEMM choices"); empty without a home.
std::filesystem::path default_choice_cache();

}  // namespace tessera::trainer
