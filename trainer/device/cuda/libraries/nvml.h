// The driver's own figures of a GPU, by NVML: clocks, power, temperature, why clocks are held down.
// The library comes with the driver and is opened at run time; where it is not there, or does not
// know a figure, the figure is absent.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/device/gpu.h"

namespace tessera::trainer::cuda {

class Nvml {
 public:
  // Null where libnvidia-ml cannot be opened.
  static std::unique_ptr<Nvml> open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // "580.95.05".
  std::optional<std::string> driver_version() const;

  // A GPU of the machine, by "00000000:3B:00.0". Null: NVML does not know it.
  using Device = struct nvmlDevice_st*;
  Device device(const std::string& pci_bus_id) const;

  std::optional<double> sm_clock_mhz(Device device) const;
  std::optional<double> sm_clock_max_mhz(Device device) const;
  std::optional<double> power_w(Device device) const;
  std::optional<double> power_limit_w(Device device) const;
  std::optional<double> temperature_c(Device device) const;
  // Bits of nvmlClocksEventReasons.
  std::optional<unsigned long long> throttle_reasons(Device device) const;
  // Processes that compute on the GPU, this one among them. By number: their ids may be those of
  // another namespace.
  std::optional<std::int64_t> processes(Device device) const;

 private:
  struct Functions;
  Nvml();
  std::unique_ptr<Functions> functions_;
};

// Names of the reasons that hold clocks under what was asked for while a GPU works: "power",
// "thermal", "hw-slowdown", "sync-boost". Idle and clocks that somebody set are none.
std::vector<std::string> throttle_names(unsigned long long reasons);

// Samples a device every `interval` from a thread of its own.
class Watcher {
 public:
  Watcher(const Nvml& nvml, Nvml::Device device) : nvml_(nvml), device_(device) {}
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  void begin();
  GpuWatch end();

 private:
  void sample();

  const Nvml& nvml_;
  Nvml::Device device_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  GpuWatch watch_;
  double clock_sum_ = 0;
  double power_sum_ = 0;
  std::int64_t clocks_ = 0;
  std::int64_t powers_ = 0;
  unsigned long long reasons_ = 0;
};

}  // namespace tessera::trainer::cuda
