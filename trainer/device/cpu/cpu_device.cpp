// SPDX-License-Identifier: Apache-2.0
// The CPU device. It checks operations, remembers those that were prepared, and executes at once.
#include "trainer/device/cpu/cpu_device.h"

#include <cblas.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <unordered_set>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "trainer/device/check.h"
#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/pages.h"
#include "trainer/device/fingerprint.h"

namespace tessera::trainer {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, const cpu::Kernels& kernels) : kernels_(kernels) {
    if (threads < 1) {
      throw Error(ExitCode::internal, "cpu_device", fmt::format("{} threads", threads));
    }
    // OpenMP must not shrink the team: the scratch is planned for this many threads.
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    openblas_set_num_threads(threads);
    info_ = {"cpu",   cpu_name(),   cpu::meminfo_bytes("MemTotal"),
             threads, kernels_.isa, openblas_get_config()};
    times_.fill(std::numeric_limits<double>::quiet_NaN());
  }

  const DeviceInfo& info() const override { return info_; }

  std::byte* allocate(Pool, std::int64_t bytes) override {
    if (sealed_) throw Error(ExitCode::internal, "allocate", "the device is sealed");
    return pools_.emplace_back(bytes, info_.threads).data();
  }

  std::int64_t workspace_bytes(const Op& op) const override {
    return cpu::workspace_bytes(op, info_.threads);
  }

  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    if (sealed_) throw Error(ExitCode::internal, "prepare", "the device is sealed");
    if (reinterpret_cast<std::uintptr_t>(workspace.data()) % 64 != 0) {
      throw Error(ExitCode::internal, "prepare", "the workspace is not aligned to 64 bytes");
    }
    for (const Op& op : all) {
      check(op);
      const std::int64_t need = workspace_bytes(op);
      if (need > static_cast<std::int64_t>(workspace.size())) {
        throw Error(
            ExitCode::unsupported, op_name(op),
            fmt::format("needs {} bytes of workspace, {} were given", need, workspace.size()));
      }
      prepared_.insert(fingerprint(op));
    }
    // Operations of an earlier prepare may need the larger of the two workspaces.
    if (workspace.size() > workspace_.size()) workspace_ = workspace;
  }

  void seal() override { sealed_ = true; }

  // Before seal() an operation that was not prepared runs too, if the workspace suffices.
  void run(Stream, const Op& op, Tag) override {
    if (!prepared_.contains(fingerprint(op))) {
      if (sealed_) {
        throw Error(ExitCode::internal, op_name(op), "was not prepared before the device's seal");
      }
      check(op);
      if (workspace_bytes(op) > static_cast<std::int64_t>(workspace_.size())) {
        throw Error(ExitCode::internal, op_name(op), "needs workspace and was not prepared");
      }
    }
    const cpu::Context context{kernels_, info_.threads, workspace_};
    std::visit([&context](const auto& o) { cpu::run(o, context); }, op);
  }

  void copy(Stream, void* dst, const void* src, std::int64_t bytes) override {
    constexpr std::int64_t kPiece = 1 << 20;
    const std::int64_t pieces = (bytes + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (std::int64_t i = 0; i < pieces; ++i) {
      std::memcpy(static_cast<std::byte*>(dst) + i * kPiece,
                  static_cast<const std::byte*>(src) + i * kPiece,
                  static_cast<std::size_t>(std::min(kPiece, bytes - i * kPiece)));
    }
  }

  // Operations run at issue, so an event is just the time of its record.
  void record(Stream, Event event) override { time_of(event, false) = monotonic_seconds(); }
  void wait(Stream, Event event) override { time_of(event, true); }
  void host_wait(Event event) override { time_of(event, true); }
  double seconds(Event from, Event to) override { return time_of(to, true) - time_of(from, true); }

 private:
  double& time_of(Event event, bool recorded) {
    if (event >= kEvents) {
      throw Error(ExitCode::internal, "event", fmt::format("{} of {}", event, kEvents));
    }
    double& time = times_[event];
    if (recorded && std::isnan(time)) {
      throw Error(ExitCode::internal, "event", fmt::format("{} was never recorded", event));
    }
    return time;
  }

  const cpu::Kernels& kernels_;
  DeviceInfo info_;
  std::vector<cpu::Pages> pools_;
  std::unordered_set<Fingerprint, FingerprintHash> prepared_;
  std::span<std::byte> workspace_;
  bool sealed_ = false;
  std::array<double, kEvents> times_{};
};

}  // namespace

std::unique_ptr<Device> cpu_device(int threads) {
  return cpu::cpu_device(threads, *cpu::supported_kernels().front());
}

std::unique_ptr<Device> cpu::cpu_device(int threads, const Kernels& kernels) {
  return std::make_unique<CpuDevice>(threads, kernels);
}

}  // namespace tessera::trainer
