// SPDX-License-Identifier: Apache-2.0
// The CUDA device. It checks and prepares operations before seal(), and only launches afterwards.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "lib/base/error.h"
#include "lib/memory/scratch.h"
#include "trainer/device/check.h"
#include "trainer/device/cuda/attention/attention.h"
#include "trainer/device/cuda/gemm/gemm.h"
#include "trainer/device/cuda/gemm/gemm_cache.h"
#include "trainer/device/cuda/gemm/gemm_peak.h"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/libraries/nvml.h"
#include "trainer/device/cuda/libraries/presence.h"
#include "trainer/device/cuda/libraries/runtime.h"
#include "trainer/device/cuda/workspace.h"
#include "trainer/device/fields.h"
#include "trainer/device/fingerprint.h"
#include "trainer/device/gpu.h"

namespace tessera::trainer {

namespace {

using cuda::check;

// Refuses f64 tensors: they are for tests on the CPU.
class RejectF64 {
 public:
  explicit RejectF64(const Op& op) : op_(op) {}
  template <class... Fields>
  void operator()(const Fields&... fields) const {
    (check_field(fields), ...);
  }

 private:
  void check_field(const Tensor& tensor) const {
    if (tensor && tensor.dtype == DType::f64)
      throw Error(ExitCode::unsupported, op_name(op_), "f64 on a GPU", "f32 or bf16");
  }
  template <class T>
  void check_field(const T& /*not a tensor*/) const {}

  const Op& op_;
};

template <class T>
inline constexpr bool kIsAttention =
    std::is_same_v<T, AttentionForward> || std::is_same_v<T, AttentionBackward>;

class CudaDevice final : public Gpu {
 public:
  explicit CudaDevice(GpuOptions options)
      : options_(std::move(options)), properties_(cuda::select_gpu(options_.ordinal)) {
    info_.kind = "cuda";
    info_.name = properties_.name;
    info_.memory_bytes = static_cast<std::int64_t>(properties_.totalGlobalMem);
    // Communication streams have the higher priority: computation waits for them.
    for (int i = 0; i < kStreams; ++i) {
      const auto stream = static_cast<Stream>(i);
      streams_[static_cast<std::size_t>(i)] =
          cuda::make_stream(stream == Stream::gather || stream == Stream::reduce);
    }
    for (cuda::OwnedEvent& event : events_) event = cuda::make_event();
    gemms_.emplace(cuda::cublas_lt(), options_.tf32);
    attention_ = std::make_unique<cuda::Attention>(
        cuda::AttentionOptions{.deterministic = options_.deterministic,
                               .tf32 = options_.tf32,
                               .use_cudnn = options_.use_cudnn,
                               .compute_capability = 10 * properties_.major + properties_.minor,
                               .multiprocessors = properties_.multiProcessorCount},
        *gemms_);
    nvml_ = cuda::Nvml::open();
    if (nvml_) nvml_device_ = nvml_->device(bus_id());
    if (nvml_device_ != nullptr) watcher_.emplace(*nvml_, nvml_device_);
  }
  ~CudaDevice() override { cudaDeviceSynchronize(); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }

  std::byte* allocate(Pool pool, std::int64_t bytes) override {
    require_unsealed("allocate");
    if (pool == Pool::pinned) return pinned_.emplace_back(cuda::pinned_memory(bytes)).get();
    pool_bytes_ += bytes;
    std::byte* const base = pools_.emplace_back(pool_of(bytes)).get();
    pool_spans_.emplace_back(base, static_cast<std::size_t>(bytes));
    return base;
  }

  std::int64_t workspace_bytes(const Op& op) const override {
    return std::visit(
        [this](const auto& o) -> std::int64_t {
          using T = std::decay_t<decltype(o)>;
          if constexpr (std::is_same_v<T, Gemm>) {
            return memory::kGemmWorkspaceBytes;
          } else if constexpr (kIsAttention<T>) {
            return attention_->workspace_bytes(o);
          } else {
            return 0;
          }
        },
        op);
  }

  void prepare(std::span<const Op> all, std::span<std::byte> workspace) override {
    require_unsealed("prepare");
    if (reinterpret_cast<std::uintptr_t>(workspace.data()) % 256 != 0)
      throw Error(ExitCode::internal, "prepare", "the workspace is not aligned to 256 bytes");
    // Plans hold the workspace's address.
    if (workspace_.data() != nullptr &&
        (workspace.data() != workspace_.data() || workspace.size() != workspace_.size()))
      throw Error(ExitCode::internal, "prepare", "another workspace than before");
    workspace_ = workspace;
    std::vector<cuda::GemmShape> shapes;
    std::vector<Fingerprint> added;
    for (const Op& op : all) {
      trainer::check(op);
      std::visit([&](const auto& o) { visit_fields(o, RejectF64(op)); }, op);
      if (prepared_.contains(fingerprint(op))) continue;
      std::visit([&](const auto& o) { prepare_one(o, shapes); }, op);
      added.push_back(fingerprint(op));
    }
    const auto trials = options_.deterministic
                            ? nullptr
                            : cuda::gpu_trials(stream(Stream::compute), spare_memory());
    gemms_->prepare(shapes, cuda::parts_of(workspace_).gemm, gemm_options(), trials.get(),
                    stream(Stream::compute));
    for (const Op& op : all) std::visit([this](const auto& o) { launch_first(o); }, op);
    check(cudaDeviceSynchronize(), "prepare");
    prepared_.insert(added.begin(), added.end());
  }

  void seal() override { sealed_ = true; }

  void run(Stream where, const Op& op, Tag /*tag*/) override {
    if (!prepared_.contains(fingerprint(op)))
      throw Error(ExitCode::internal, op_name(op), "was not prepared");
    if (watching_ && where == Stream::compute && ++issued_ % kIdleEvery == 0) sample_idle();
    std::visit([&](const auto& o) { run_one(o, where); }, op);
  }

  void copy(Stream where, void* dst, const void* src, std::int64_t bytes) override {
    check(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                          stream(where)),
          "copy");
  }

  void record(Stream where, Event event) override {
    check(cudaEventRecord(event_at(event, false), stream(where)), "record");
    recorded_[event] = true;
  }
  void wait(Stream where, Event event) override {
    check(cudaStreamWaitEvent(stream(where), event_at(event, true)), "wait");
  }
  void host_wait(Event event) override {
    check(cudaEventSynchronize(event_at(event, true)), "host_wait");
  }
  double seconds(Event from, Event to) override {
    host_wait(to);
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, event_at(from, true), event_at(to, true)), "seconds");
    return 1e-3 * static_cast<double>(milliseconds);
  }

  GpuSoftware software() const override {
    GpuSoftware software = cuda::software();
    if (nvml_) software.driver = nvml_->driver_version().value_or(software.driver);
    return software;
  }

  GpuFacts facts() const override {
    GpuFacts facts{.pci_bus_id = bus_id(),
                   .multiprocessors = properties_.multiProcessorCount,
                   .compute_capability = 10 * properties_.major + properties_.minor,
                   .l2_bytes = properties_.l2CacheSize};
    if (nvml_device_ != nullptr) {
      facts.sm_clock_max_mhz = nvml_->sm_clock_max_mhz(nvml_device_);
      facts.power_limit_w = nvml_->power_limit_w(nvml_device_);
    }
    return facts;
  }

  std::vector<GpuChoice> choices() const override {
    std::vector<GpuChoice> all = attention_->choices();
    for (const cuda::GemmChoice& choice : gemms_->choices())
      all.push_back(cuda::gpu_choice(choice));
    return all;
  }
  std::string choices_hash() const override { return gemms_->hash(); }
  std::string attention() const override { return attention_->name(); }
  std::vector<std::string> notes() const override { return gemms_->notes(); }

  std::int64_t unplanned_bytes() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(total - free) - pool_bytes_;
  }

  double measure_gemm_tflops(Precision precision, double seconds) override {
    return cuda::measure_gemm_tflops(precision, seconds, gemm_options(), stream(Stream::compute));
  }

  void watch() override {
    watching_ = true;
    issued_ = idle_samples_ = idle_hits_ = 0;
    if (watcher_) watcher_->begin();
  }
  GpuWatch watched() override {
    watching_ = false;
    GpuWatch seen = watcher_ ? watcher_->end() : GpuWatch{};
    if (idle_samples_ > 0)
      seen.idle_share = static_cast<double>(idle_hits_) / static_cast<double>(idle_samples_);
    return seen;
  }

 private:
  void require_unsealed(const char* what) const {
    if (sealed_) throw Error(ExitCode::internal, what, "the device is sealed");
  }

  // Checks whether the GPU has run out of work when the host brings more. It samples every
  // sixteenth operation: a query costs about as much as a launch.
  void sample_idle() {
    ++idle_samples_;
    const cudaError_t status = cudaStreamQuery(stream(Stream::compute));
    if (status == cudaSuccess) {
      ++idle_hits_;
    } else if (status != cudaErrorNotReady) {
      check(status, "cudaStreamQuery");
    } else {
      cudaGetLastError();  // clears cudaErrorNotReady, which the next launch would report
    }
  }

  cudaStream_t stream(Stream which) const {
    return streams_[static_cast<std::size_t>(which)].get();
  }

  cudaEvent_t event_at(Event event, bool recorded) const {
    if (event >= kEvents)
      throw Error(ExitCode::internal, "event", fmt::format("{} of {}", event, kEvents));
    if (recorded && !recorded_[event])
      throw Error(ExitCode::internal, "event", fmt::format("{} was never recorded", event));
    return events_[event].get();
  }

  std::string bus_id() const {
    constexpr int kLength = 32;
    char text[kLength] = {};
    check(cudaDeviceGetPCIBusId(text, kLength, options_.ordinal), "cudaDeviceGetPCIBusId");
    return text;
  }

  cuda::GemmOptions gemm_options() const {
    cuda::GemmOptions options;
    options.deterministic = options_.deterministic;
    options.cache = options_.choice_cache;
    options.gpu = cuda::current_gpu();
    return options;
  }

  // Allocates a pool. If only other processes' memory is in the way, it reports wrong_device, not
  // oom: a retry with a smaller microbatch would not help.
  cuda::DeviceMemory pool_of(std::int64_t bytes) const {
    try {
      return cuda::device_memory(bytes);
    } catch (const Error& error) {
      constexpr std::int64_t kOwn = std::int64_t{2} << 30;  // context and libraries
      std::size_t free = 0;
      std::size_t total = 0;
      if (error.code() != ExitCode::oom || cudaMemGetInfo(&free, &total) != cudaSuccess) throw;
      const std::int64_t others = static_cast<std::int64_t>(total - free) - (pool_bytes_ - bytes);
      if (others <= kOwn || pool_bytes_ + kOwn > static_cast<std::int64_t>(total)) throw;
      constexpr double kGib = std::int64_t{1} << 30;
      throw Error(ExitCode::wrong_device, "GPU memory",
                  fmt::format("{:.2f} GiB are wanted; of {:.2f} GiB others have {:.2f}",
                              static_cast<double>(bytes) / kGib, static_cast<double>(total) / kGib,
                              static_cast<double>(others) / kGib),
                  "wait until the other processes have ended, or take another GPU");
    }
  }

  // Returns the largest free part of the pools: while operations are prepared nothing in them
  // matters.
  std::span<std::byte> spare_memory() const {
    std::span<std::byte> most;
    for (const std::span<std::byte> pool : pool_spans_) {
      const std::span<std::byte> free = cuda::free_around(pool, workspace_);
      if (free.size() > most.size()) most = free;
    }
    return most;
  }

  cuda::Launch launch_on(Stream where) const {
    return {.stream = stream(where),
            .multiprocessors = properties_.multiProcessorCount,
            .max_shared_bytes = static_cast<int>(properties_.sharedMemPerBlockOptin)};
  }

  // GEMMs are collected, so that all are timed in one go. Own kernels are loaded now and those of
  // libraries in launch_first: the driver would load them at the first launch, and its time and
  // memory belong to no step.
  template <class T>
  void prepare_one(const T& op, std::vector<cuda::GemmShape>& shapes) {
    if constexpr (std::is_same_v<T, Gemm>) {
      shapes.push_back(cuda::shape_of(op, options_.tf32));
    } else if constexpr (kIsAttention<T>) {
      attention_->prepare(op, workspace_, shapes);
    } else {
      cuda::Launch load = launch_on(Stream::compute);
      load.load_only = true;
      cuda::gpu::run(op, load);
    }
  }

  // Launches each plan once, on whatever lies in the operands: only a launch loads a library's
  // kernel.
  template <class T>
  void launch_first(const T& op) {
    if constexpr (std::is_same_v<T, Gemm>) {
      if (launched_.insert(cuda::shape_of(op, options_.tf32)).second)
        gemms_->launch_first(op, stream(Stream::compute));
    } else if constexpr (kIsAttention<T>) {
      T anywhere = op;
      for (Tensor* t : tensors_of(anywhere)) t->data = nullptr;
      if (launched_attention_.insert(fingerprint(Op(anywhere))).second)
        attention_->launch_first(op, stream(Stream::compute));
    }
  }
  static std::vector<Tensor*> tensors_of(AttentionForward& op) {
    return {&op.qkv, &op.out, &op.lse};
  }
  static std::vector<Tensor*> tensors_of(AttentionBackward& op) {
    return {&op.qkv, &op.out, &op.lse, &op.dout, &op.dqkv, &op.row_sum};
  }

  template <class T>
  void run_one(const T& op, Stream where) {
    if constexpr (std::is_same_v<T, Gemm>) {
      gemms_->run(op, stream(where));
    } else if constexpr (kIsAttention<T>) {
      attention_->run(op, stream(where));
    } else {
      cuda::gpu::run(op, launch_on(where));
    }
  }

  GpuOptions options_;
  cudaDeviceProp properties_;
  DeviceInfo info_;
  std::array<cuda::OwnedStream, kStreams> streams_;
  std::array<cuda::OwnedEvent, kEvents> events_;
  std::array<bool, kEvents> recorded_{};
  std::vector<cuda::DeviceMemory> pools_;
  std::vector<cuda::PinnedMemory> pinned_;
  std::vector<std::span<std::byte>> pool_spans_;
  std::int64_t pool_bytes_ = 0;
  std::span<std::byte> workspace_;
  std::optional<cuda::GemmPlans> gemms_;
  std::unique_ptr<cuda::Attention> attention_;
  std::unordered_set<Fingerprint, FingerprintHash> prepared_;
  std::unordered_set<cuda::GemmShape, cuda::GemmShapeHash> launched_;
  std::unordered_set<Fingerprint, FingerprintHash> launched_attention_;  // keys without addresses
  bool sealed_ = false;
  static constexpr std::int64_t kIdleEvery = 16;
  bool watching_ = false;
  std::int64_t issued_ = 0, idle_samples_ = 0, idle_hits_ = 0;
  std::unique_ptr<cuda::Nvml> nvml_;
  cuda::Nvml::Device nvml_device_ = nullptr;
  std::optional<cuda::Watcher> watcher_;
};

}  // namespace

std::filesystem::path default_choice_cache() {
  return cuda::default_gemm_cache();
}

std::unique_ptr<Gpu> open_gpu(const GpuOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace tessera::trainer
