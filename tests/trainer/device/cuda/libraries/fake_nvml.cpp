// SPDX-License-Identifier: Apache-2.0
// A library with NVML's C interface and two GPUs.
#include "tests/trainer/device/cuda/libraries/fake_nvml.h"

#include <atomic>
#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr unsigned kProcesses = 3;

struct Device {
  bool blind = false;
  std::atomic<unsigned> asked{0};
};
Device seeing{false, {}};
Device blind{true, {}};

int answer(const Device* device, unsigned value, unsigned* out) {
  if (device->blind) return kNotSupported;
  *out = value;
  return kSuccess;
}

}  // namespace

extern "C" {
int nvmlInit_v2() {
  return kSuccess;
}
int nvmlShutdown() {
  return kSuccess;
}
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::strncpy(text, "580.95.05", length);
  return kSuccess;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device** device) {
  if (std::strcmp(bus_id, tessera::trainer::cuda::kFakeBusId) == 0) {
    *device = &seeing;
  } else if (std::strcmp(bus_id, tessera::trainer::cuda::kFakeBlindBusId) == 0) {
    *device = &blind;
  } else {
    return kNotFound;
  }
  return kSuccess;
}
int nvmlDeviceGetClockInfo(Device* device, unsigned kind, unsigned* mhz) {
  if (kind != 1) return kNotSupported;
  return answer(device, device->asked++ % 2 == 0 ? 1800 : 1200, mhz);
}
int nvmlDeviceGetMaxClockInfo(Device* device, unsigned kind, unsigned* mhz) {
  if (kind != 1) return kNotSupported;
  return answer(device, 1980, mhz);
}
int nvmlDeviceGetPowerUsage(Device* device, unsigned* milliwatts) {
  return answer(device, device->asked.load() % 2 == 0 ? 690000 : 500000, milliwatts);
}
int nvmlDeviceGetEnforcedPowerLimit(Device* device, unsigned* milliwatts) {
  return answer(device, 700000, milliwatts);
}
int nvmlDeviceGetTemperature(Device* device, unsigned kind, unsigned* celsius) {
  if (kind != 0) return kNotSupported;
  return answer(device, 61, celsius);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device* device, unsigned long long* reasons) {
  if (device->blind) return kNotSupported;
  *reasons = 0x44;
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device* device, unsigned* count, void* /*processes*/) {
  if (device->blind) return kNotSupported;
  const bool enough = *count >= kProcesses;
  *count = kProcesses;
  return enough ? kSuccess : kInsufficientSize;
}
}
