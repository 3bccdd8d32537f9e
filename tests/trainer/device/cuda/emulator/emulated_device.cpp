// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/device/cuda/emulator/emulated_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <unordered_set>

#include "lib/base/error.h"
#include "trainer/device/check.h"
#include "trainer/device/cuda/attention/attention_unfused.h"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/workspace.h"
#include "trainer/device/fingerprint.h"

namespace tessera::trainer::test {

namespace {

template <class T>
inline constexpr bool kAttention =
    std::is_same_v<T, AttentionForward> || std::is_same_v<T, AttentionBackward>;

// Runs unfused attention: GEMMs by the CPU device, one of a batch after another, and only those
// that were announced.
class EmulatedAttention final : public cuda::UnfusedAttention {
 public:
  EmulatedAttention(Device& cpu, const cuda::Launch& launch,
                    std::vector<cuda::BatchedGemm> announced, std::span<std::byte> products)
      : cpu_(cpu), launch_(launch), announced_(std::move(announced)), products_(products) {}

  void run(const cuda::BatchedGemm& op) override {
    const bool known =
        std::any_of(announced_.begin(), announced_.end(),
                    [&](const cuda::BatchedGemm& other) { return same_plan(op, other); });
    if (!known) throw Error(ExitCode::internal, "attention", "a product was not announced");
    // A GPU's GEMM may write anywhere in its workspace before it reads its operands.
    constexpr std::size_t kSome = 4096;
    const std::size_t some = std::min(kSome, products_.size());
    std::ranges::fill(products_.first(some), std::byte{0xff});
    std::ranges::fill(products_.last(some), std::byte{0xff});
    for (std::int64_t i = 0; i < op.batch; ++i) {
      Gemm one = op.first;
      one.a = moved(one.a, i * op.a_stride);
      one.b = moved(one.b, i * op.b_stride);
      one.d = moved(one.d, i * op.d_stride);
      cpu_.run(Stream::compute, one, {});
    }
  }
  void run(const cuda::SoftmaxForward& op) override { cuda::emulated::run(op, launch_); }
  void run(const cuda::SoftmaxBackward& op) override { cuda::emulated::run(op, launch_); }
  void run(const cuda::RowSum& op) override { cuda::emulated::run(op, launch_); }
  void run(const Cast& op) override { cuda::emulated::run(op, launch_); }

 private:
  static Tensor moved(Tensor t, std::int64_t elements) {
    t.data = static_cast<std::byte*>(t.data) + elements * bytes_of(t.dtype);
    return t;
  }

  Device& cpu_;
  cuda::Launch launch_;
  std::vector<cuda::BatchedGemm> announced_;
  std::span<std::byte> products_;
};

// Shared memory of a block. With kMuchShared every row of the cases is resident; with kLittleShared
// the longest rows are so in part, in f32 and in bf16.
constexpr int kMuchShared = 227 << 10;
constexpr int kLittleShared = 34 << 10;

class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(int multiprocessors, AttentionWorkspace attention)
      : cpu_(cpu_device(1)),
        launch_{.stream = nullptr,
                .multiprocessors = multiprocessors,
                .load_only = false,
                .max_shared_bytes = multiprocessors == 1 ? kLittleShared : kMuchShared},
        attention_(attention),
        info_(cpu_->info()) {
    info_.kind = "cpu";  // executes at issue
    info_.name = "emulated GPU";
  }

  const DeviceInfo& info() const override { return info_; }
  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    return cpu_->allocate(pool, bytes);
  }
  std::int64_t workspace_bytes(const Op& op) const override {
    return workspace_bytes_of(op, attention_);
  }

  // The CPU device's GEMMs have their own workspace: it is no part of a GPU's plan.
  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    if (sealed_) throw Error(ExitCode::internal, "prepare", "the device is sealed");
    workspace_ = workspace;
    std::int64_t products = 0;
    for (const Op& op : all) {
      check(op);
      const std::int64_t need = workspace_bytes_of(op, AttentionWorkspace::least);
      if (need > static_cast<std::int64_t>(workspace.size()))
        throw Error(ExitCode::unsupported, op_name(op),
                    fmt::format("needs {} bytes of workspace", need));
      std::visit([&](const auto& o) { products = std::max(products, product_bytes(o)); }, op);
      prepared_.insert(fingerprint(op));
    }
    cpu_->prepare({}, {cpu_->allocate(Pool::device, products), static_cast<std::size_t>(products)});
  }
  void seal() override { sealed_ = true; }

  void run(Stream stream, const Op& op, Tag tag) override {
    if (!prepared_.contains(fingerprint(op))) {
      if (sealed_ || workspace_bytes_of(op, AttentionWorkspace::least) > 0)
        throw Error(ExitCode::internal, op_name(op), "was not prepared");
      check(op);
    }
    std::visit(
        [&](const auto& o) {
          using T = std::decay_t<decltype(o)>;
          if constexpr (kAttention<T>) {
            const std::span<std::byte> workspace = workspace_of(o);
            EmulatedAttention parts(*cpu_, launch_, cuda::unfused_attention_gemms(o, workspace),
                                    cuda::parts_of(workspace_).gemm);
            run_unfused_attention(o, workspace, parts);
          } else if constexpr (!std::is_same_v<T, Gemm>) {
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
  static std::int64_t workspace_bytes_of(const Op& op, AttentionWorkspace attention) {
    return std::visit(
        [&](const auto& o) -> std::int64_t {
          if constexpr (kAttention<std::decay_t<decltype(o)>>) {
            return cuda::workspace_with(attention == AttentionWorkspace::least
                                            ? cuda::unfused_attention_least_bytes(o)
                                            : cuda::unfused_attention_workspace_bytes(o));
          } else {
            return 0;
          }
        },
        op);
  }

  template <class T>
  std::span<std::byte> workspace_of(const T& op) const {
    const std::span<std::byte> all = cuda::parts_of(workspace_).attention;
    return attention_ == AttentionWorkspace::all
               ? all
               : all.first(static_cast<std::size_t>(cuda::unfused_attention_least_bytes(op)));
  }

  template <class T>
  std::int64_t product_bytes(const T& op) const {
    std::int64_t most = 0;
    if constexpr (kAttention<T>) {
      for (const cuda::BatchedGemm& gemm : cuda::unfused_attention_gemms(op, workspace_of(op)))
        most = std::max(most, cpu_->workspace_bytes(gemm.first));
    } else if constexpr (std::is_same_v<T, Gemm>) {
      most = cpu_->workspace_bytes(op);
    }
    return most;
  }

  std::unique_ptr<Device> cpu_;
  cuda::Launch launch_;
  AttentionWorkspace attention_;
  DeviceInfo info_;
  std::unordered_set<Fingerprint, FingerprintHash> prepared_;
  std::span<std::byte> workspace_;
  bool sealed_ = false;
};

}  // namespace

std::unique_ptr<Device> emulated_device(int multiprocessors, AttentionWorkspace attention) {
  return std::make_unique<EmulatedDevice>(multiprocessors, attention);
}

}  // namespace tessera::trainer::test
