// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/libraries/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "trainer/device/cuda/libraries/libraries.h"

namespace tessera::trainer::cuda {

namespace {

// NVML's C interface, which is stable, is declared here: its header is not in every toolkit.
using Status = int;
constexpr Status kSuccess = 0;
constexpr unsigned kSmClock = 1;         // NVML_CLOCK_SM
constexpr Status kInsufficientSize = 7;  // NVML_ERROR_INSUFFICIENT_SIZE
constexpr unsigned kGpuTemperature = 0;  // NVML_TEMPERATURE_GPU

constexpr std::pair<unsigned long long, const char*> kReasons[] = {
    {0x4, "power"},         // software power cap
    {0x8, "hw-slowdown"},   // thermal or power brake, by the hardware
    {0x10, "sync-boost"},   // held by another GPU of its group
    {0x20, "thermal"},      // software thermal slowdown
    {0x40, "hw-thermal"},   // hardware thermal slowdown
    {0x80, "power-brake"},  // external power brake
};

constexpr std::chrono::milliseconds kInterval{200};

}  // namespace

// Function pointers. One is null if the driver's NVML lacks the function; then its figure is
// absent.
struct Nvml::Functions {
  void* library = nullptr;
  Status (*init)() = nullptr;
  Status (*shutdown)() = nullptr;
  Status (*driver_version)(char*, unsigned) = nullptr;
  Status (*by_bus_id)(const char*, Device*) = nullptr;
  Status (*clock)(Device, unsigned, unsigned*) = nullptr;
  Status (*max_clock)(Device, unsigned, unsigned*) = nullptr;
  Status (*power)(Device, unsigned*) = nullptr;
  Status (*power_limit)(Device, unsigned*) = nullptr;
  Status (*temperature)(Device, unsigned, unsigned*) = nullptr;
  Status (*reasons)(Device, unsigned long long*) = nullptr;
  Status (*processes)(Device, unsigned*, void*) = nullptr;
};

Nvml::Nvml() : functions_(std::make_unique<Functions>()) {}

Nvml::~Nvml() {
  if (functions_->shutdown != nullptr) functions_->shutdown();
}

std::unique_ptr<Nvml> Nvml::open() {
  void* const library = try_open_library("libnvidia-ml.so.1");
  if (library == nullptr) return nullptr;
  std::unique_ptr<Nvml> nvml(new Nvml());
  Functions& f = *nvml->functions_;
  f.library = library;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
  };
  find("nvmlInit_v2", f.init);
  if (f.init == nullptr || f.init() != kSuccess) return nullptr;
  find("nvmlShutdown", f.shutdown);
  find("nvmlSystemGetDriverVersion", f.driver_version);
  find("nvmlDeviceGetHandleByPciBusId_v2", f.by_bus_id);
  find("nvmlDeviceGetClockInfo", f.clock);
  find("nvmlDeviceGetMaxClockInfo", f.max_clock);
  find("nvmlDeviceGetPowerUsage", f.power);
  find("nvmlDeviceGetEnforcedPowerLimit", f.power_limit);
  find("nvmlDeviceGetTemperature", f.temperature);
  find("nvmlDeviceGetCurrentClocksThrottleReasons", f.reasons);
  if (f.reasons == nullptr) find("nvmlDeviceGetCurrentClocksEventReasons", f.reasons);
  // The versions differ in what they tell of each process; only the number is needed.
  for (const char* name :
       {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}) {
    if (f.processes == nullptr) find(name, f.processes);
  }
  return nvml;
}

std::optional<std::string> Nvml::driver_version() const {
  constexpr unsigned kLength = 80;  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
  char text[kLength + 1] = {};
  if (functions_->driver_version == nullptr ||
      functions_->driver_version(text, kLength) != kSuccess)
    return std::nullopt;
  return text;
}

Nvml::Device Nvml::device(const std::string& pci_bus_id) const {
  Device device = nullptr;
  if (functions_->by_bus_id == nullptr ||
      functions_->by_bus_id(pci_bus_id.c_str(), &device) != kSuccess)
    return nullptr;
  return device;
}

namespace {

template <class... Parameters, class... Arguments>
std::optional<double> ask(Status (*function)(Parameters...), double unit, Arguments... arguments) {
  unsigned value = 0;
  if (function == nullptr || function(arguments..., &value) != kSuccess) return std::nullopt;
  return unit * value;
}

constexpr double kMilli = 1e-3;

}  // namespace

std::optional<double> Nvml::sm_clock_mhz(Device device) const {
  return ask(functions_->clock, 1, device, kSmClock);
}
std::optional<double> Nvml::sm_clock_max_mhz(Device device) const {
  return ask(functions_->max_clock, 1, device, kSmClock);
}
std::optional<double> Nvml::power_w(Device device) const {
  return ask(functions_->power, kMilli, device);
}
std::optional<double> Nvml::power_limit_w(Device device) const {
  return ask(functions_->power_limit, kMilli, device);
}
std::optional<double> Nvml::temperature_c(Device device) const {
  return ask(functions_->temperature, 1, device, kGpuTemperature);
}
std::optional<unsigned long long> Nvml::throttle_reasons(Device device) const {
  unsigned long long reasons = 0;
  if (functions_->reasons == nullptr || functions_->reasons(device, &reasons) != kSuccess)
    return std::nullopt;
  return reasons;
}

std::optional<std::int64_t> Nvml::processes(Device device) const {
  // Asked with no room for any, NVML returns their number.
  unsigned count = 0;
  if (functions_->processes == nullptr) return std::nullopt;
  const Status status = functions_->processes(device, &count, nullptr);
  if (status != kSuccess && status != kInsufficientSize) return std::nullopt;
  return count;
}

std::vector<std::string> throttle_names(unsigned long long reasons) {
  std::vector<std::string> names;
  for (const auto& [bit, name] : kReasons) {
    if ((reasons & bit) != 0) names.emplace_back(name);
  }
  std::ranges::sort(names);
  return names;
}

Watcher::~Watcher() {
  if (thread_.joinable()) end();
}

void Watcher::begin() {
  if (thread_.joinable()) end();
  watch_ = {};
  clock_sum_ = power_sum_ = 0;
  clocks_ = powers_ = 0;
  reasons_ = 0;
  stopping_ = false;
  thread_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    // The first sample comes after an interval: the driver's averages still hold what was before.
    while (!stop_.wait_for(lock, kInterval, [this] { return stopping_; })) sample();
  });
}

void Watcher::sample() {
  ++watch_.samples;
  if (const auto clock = nvml_.sm_clock_mhz(device_)) {
    clock_sum_ += *clock;
    ++clocks_;
    watch_.sm_clock_min_mhz = std::min(watch_.sm_clock_min_mhz.value_or(*clock), *clock);
  }
  if (const auto power = nvml_.power_w(device_)) {
    power_sum_ += *power;
    ++powers_;
    watch_.power_max_w = std::max(watch_.power_max_w.value_or(*power), *power);
  }
  if (const auto celsius = nvml_.temperature_c(device_))
    watch_.temperature_max_c = std::max(watch_.temperature_max_c.value_or(*celsius), *celsius);
  reasons_ |= nvml_.throttle_reasons(device_).value_or(0);
  // A container hides the processes if there are none, not even this one.
  if (const auto processes = nvml_.processes(device_).value_or(0); processes > 0)
    watch_.other_processes = std::max(watch_.other_processes.value_or(0), processes - 1);
}

GpuWatch Watcher::end() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (clocks_ > 0) watch_.sm_clock_mean_mhz = clock_sum_ / static_cast<double>(clocks_);
  if (powers_ > 0) watch_.power_mean_w = power_sum_ / static_cast<double>(powers_);
  watch_.throttled = throttle_names(reasons_);
  return watch_;
}

}  // namespace tessera::trainer::cuda
