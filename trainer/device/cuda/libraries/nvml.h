// SPDX-License-Identifier: Apache-2.0
// The driver's own figures of a GPU, by NVML: clocks, power, temperature, reasons for low clocks.
// The library comes with the driver and is opened at run time. A figure is absent if the library
// is, or if the library does not know it.
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
  // Returns null if libnvidia-ml cannot be opened.
  static std::unique_ptr<Nvml> open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns "580.95.05".
  std::optional<std::string> driver_version() const;

  // Returns the GPU at "00000000:3B:00.0". Null: NVML does not know it.
  using Device = struct nvmlDevice_st*;
  Device device(const std::string& pci_bus_id) const;

  std::optional<double> sm_clock_mhz(Device device) const;
  std::optional<double> sm_clock_max_mhz(Device device) const;
  std::optional<double> power_w(Device device) const;
  std::optional<double> power_limit_w(Device device) const;
  std::optional<double> temperature_c(Device device) const;
  // Returns bits of nvmlClocksEventReasons.
  std::optional<unsigned long long> throttle_reasons(Device device) const;
  // Returns how many processes compute on the GPU, this one included. It returns no ids: they may
  // be those of another process namespace.
  std::optional<std::int64_t> processes(Device device) const;

 private:
  struct Functions;
  Nvml();
  std::unique_ptr<Functions> functions_;
};

// Returns names of the reasons that hold a working GPU's clocks below what was asked for: "power",
// "thermal", "hw-slowdown", "sync-boost". Idle clocks and clocks that somebody set are no such
// reasons.
std::vector<std::string> throttle_names(unsigned long long reasons);

// Samples a device every `interval` from its own thread.
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
