#include "tests/trainer/device/cuda/emulated_device.h"

#include <type_traits>

#include "lib/base/error.h"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/fields.h"

namespace tessera::trainer::test {

namespace {

// The CPU device's f64 is for references.
template <class Operation>
bool has_f64(const Operation& op) {
  bool found = false;
  const auto look = [&](const auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, Tensor>)
      found = found || (field && field.dtype == DType::f64);
  };
  visit_fields(op, [&](const auto&... fields) { (look(fields), ...); });
  return found;
}

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(int multiprocessors)
      : cpu_(cpu_device(1)), launch_{nullptr, multiprocessors}, info_(cpu_->info()) {
    info_.kind = "cpu";  // executes at issue
    info_.name = "emulated GPU";
  }

  const DeviceInfo& info() const override { return info_; }
  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    return cpu_->allocate(pool, bytes);
  }
  std::int64_t workspace_bytes(const Op& op) const override { return cpu_->workspace_bytes(op); }
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    cpu_->prepare(all, workspace);
  }
  void seal() override { cpu_->seal(); }
  void run(Stream stream, const Op& op, Tag tag) override {
    std::visit(
        [&](const auto& o) {
          using T = std::decay_t<decltype(o)>;
          if constexpr (std::is_same_v<T, ActBackward> || std::is_same_v<T, ActForward> ||
                        std::is_same_v<T, BiasGrad> || std::is_same_v<T, Cast> ||
                        std::is_same_v<T, NormBackward> || std::is_same_v<T, NormForward>) {
            if (has_f64(o)) return cpu_->run(stream, op, tag);
            cuda::emulated::run(o, launch_);
          } else {
            cpu_->run(stream, op, tag);
          }
        },
        op);
  }
  void copy(Stream stream, void* dst, const void* src, std::int64_t bytes) override {
    cpu_->copy(stream, dst, src, bytes);
  }
  void record(Stream stream, Event event) override { cpu_->record(stream, event); }
  void wait(Stream stream, Event event) override { cpu_->wait(stream, event); }
  void host_wait(Event event) override { cpu_->host_wait(event); }
  double seconds(Event from, Event to) override { return cpu_->seconds(from, to); }

 private:
  std::unique_ptr<Device> cpu_;
  cuda::Launch launch_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Device> emulated_device(int multiprocessors) {
  return std::make_unique<EmulatedDevice>(multiprocessors);
}

}  // namespace tessera::trainer::test
