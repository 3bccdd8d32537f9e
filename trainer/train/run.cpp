#include "trainer/train/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/flops/utilization.h"
#include "lib/runlog/writer.h"
#include "trainer/train/accept.h"
#include "trainer/train/cpu_share.h"
#include "trainer/train/loop.h"
#include "trainer/train/profile.h"
#include "trainer/train/progress.h"
#include "trainer/train/records.h"
#include "trainer/train/run_data.h"

namespace tessera::trainer {

namespace {

using runlog::Kind;
using runlog::Status;

constexpr std::int64_t kMostStepRecords = 5000;
constexpr double kPeakSeconds = 1.0;

Status status_of(ExitCode code) {
  switch (code) {
    case ExitCode::ok:
      return Status::ok;
    case ExitCode::spec:
    case ExitCode::unsupported:
    case ExitCode::wrong_device:
    case ExitCode::log_not_writable:
      return Status::start_fail;
    case ExitCode::oom:
      return Status::oom;
    case ExitCode::host_oom:
      return Status::host_oom;
    case ExitCode::nan:
      return Status::nan;
    case ExitCode::comm_error:
      return Status::comm_error;
    case ExitCode::timeout:
      return Status::timeout;
    default:
      return Status::failed;
  }
}

int restart_count() {
  const char* text = std::getenv("SLURM_RESTART_COUNT");
  const auto count = parse_integer(text != nullptr ? text : "");
  return count && *count >= 0 && *count < 1000000 ? static_cast<int>(*count) : 0;
}

runlog::Writer open_log(const sweep::RunSpec& spec) {
  runlog::Origin origin{.project = spec.project,
                        .run = spec.run,
                        .id = spec.id,
                        .repeat = spec.repeat,
                        .attempt = spec.attempt,
                        .restart = restart_count()};
  if (spec.run_dir.empty()) return runlog::Writer::to_stdout(std::move(origin));
  return runlog::Writer::to_folder(spec.run_dir, std::move(origin));
}

// The matrices of the peak's measurement are no memory of the training. Where /proc does not take
// it, the figure stays too high.
void forget_peak_resident() {
  const FileDescriptor file(::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  constexpr std::string_view kResetPeak = "5";
  if (file) [[maybe_unused]]
    const auto wrote = ::write(file.get(), kResetPeak.data(), 1);
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

class Run {
 public:
  Run(const sweep::RunSpec& spec, const std::atomic<int>& stop, double start_s)
      : spec_(spec),
        stop_(stop),
        start_s_(start_s),
        log_(open_log(spec)),
        progress_(spec.run_dir.empty() ? stderr : stdout) {}

  int run() {
    log_.write(Kind::header, header_fields(spec_));
    runlog::Footer footer;
    try {
      train_all(footer);
    } catch (const Error& error) {
      if (error.code() == ExitCode::log_not_writable) throw;
      fail(footer, error.code(), error.what());
    } catch (const std::bad_alloc&) {
      fail(footer, ExitCode::host_oom, "out of memory");
    } catch (const std::exception& error) {
      fail(footer, ExitCode::failed, error.what());
    }
    finish(footer);
    return footer.exit_code;
  }

 private:
  static void fail(runlog::Footer& footer, ExitCode code, const std::string& reason) {
    // A fault of the engine is no start-fail: the row says failed, the code 18.
    const ExitCode known =
        static_cast<int>(code) < static_cast<int>(ExitCode::spec) ? ExitCode::failed : code;
    footer.status = status_of(known);
    footer.exit_code = static_cast<int>(known);
    footer.reason = reason;
    std::fputs(fmt::format("trainer: {}\n", reason).c_str(), stderr);
  }

  void train_all(runlog::Footer& footer) {
    accept(spec_);
    const RunData data = open_data(spec_.point);
    const int threads = threads_of(spec_.point);
    const std::unique_ptr<Device> device = cpu_device(threads);
    expect_device(spec_, device->info().name);
    const MeasuredPeak peak = peak_of(threads);

    const Setup setup = setup_of(spec_, device->info().memory_bytes);
    std::optional<ProfilingDevice> profiling;
    if (spec_.profile) profiling.emplace(*device);
    Device& used = profiling ? *profiling : *device;
    const std::unique_ptr<Communicator> communicator = single_communicator();
    Engine engine(used, *communicator, setup, data.tokens);
    log_.write(Kind::model, model_fields(spec_, engine.config()));
    Json effective = effective_fields(spec_, engine, threads);
    if (data.file) effective.update(data_fields(*data.file));
    log_.write(Kind::effective, effective);
    log_.write(Kind::host, host_fields(device->info()));
    for (const Json& part : software_fields(device->info())) log_.write(Kind::software, part);
    log_.write(Kind::plan, plan_fields(engine));
    log_.write(Kind::peak, peak_fields(peak));
    cost_of(engine, footer);
    steps(engine, device->info(), footer);
    if (profiling && footer.status == Status::ok) profile(engine, *profiling, footer);
  }

  MeasuredPeak peak_of(int threads) const {
    if (spec_.peak) return {*spec_.peak, false};
    const GemmPeak peak = measure_gemm_peak(threads, kPeakSeconds);
    forget_peak_resident();
    return {{.tflops = peak.tflops, .source = peak.source(threads)}, true};
  }

  void cost_of(const Engine& engine, runlog::Footer& footer) const {
    const StepCost cost = engine.step_cost();
    const auto tokens = static_cast<double>(engine.config().device_batch * engine.config().seq_len);
    footer.flops_executed_per_token = cost.executed / tokens;
    footer.flops_recompute_per_token =
        flops::model_flops_per_token(
            spec_.point.model, spec_.point.seq_len, flops::Convention::mosaic,
            model::parameter_count(spec_.point.model, spec_.point.seq_len) -
                memory::trained_count(engine.config())) +
        flops::recomputed_flops_per_token(
            spec_.point.model, spec_.point.seq_len,
            std::ranges::count(engine.memory().mask(), memory::Keep::input));
  }

  // On a GPU the steps asked for are minima, unless they are exact.
  static PaceRules pace_of(const sweep::Point& point, const DeviceInfo& device) {
    const bool exact = point.exact_steps || device.kind == "cpu";
    return exact ? exact_pace(point.steps, point.warmup) : gpu_pace(point.steps, point.warmup);
  }

  void steps(Engine& engine, const DeviceInfo& device, runlog::Footer& footer) {
    Pace pace(pace_of(spec_.point, device));
    samples_.reserve(static_cast<std::size_t>(pace.most_steps()));
    const std::int64_t every = std::max<std::int64_t>(
        spec_.log_every, (pace.most_steps() + kMostStepRecords - 1) / kMostStepRecords);
    footer.startup_s = monotonic_seconds() - start_s_;
    progress_.begin(spec_, engine.plan().total_bytes(), pace.is_exact());
    std::optional<CpuTimes> before;
    const LoopEnd end = train(engine, pace, stop_, samples_,
                              {.measuring =
                                   [&] {
                                     if (device.kind == "cpu") before = cpu_times();
                                   },
                               .sample =
                                   [&](const runlog::StepSample& sample) {
                                     if (sample.step % every == 0)
                                       log_.write(Kind::step, step_fields(sample));
                                     progress_.step(sample);
                                   }});
    footer.cpu_share = cpu_share(before, cpu_times());
    switch (end.kind) {
      case LoopEnd::Kind::complete:
        footer.status = Status::ok;
        return;
      case LoopEnd::Kind::not_finite:
        return fail(footer, ExitCode::nan, end.what);
      case LoopEnd::Kind::interrupted:
        return interrupted(footer);
    }
  }

  // Behind what was measured: whatever happens here, the run's figures are true.
  void profile(Engine& engine, ProfilingDevice& device, runlog::Footer& footer) {
    progress_.say(fmt::format("measuring the operations of {} more steps\n", kProfiledSteps));
    std::optional<Profile> result;
    std::string fault = "interrupted";
    try {
      result = profile_steps(engine, device, samples_.back().step, stop_);
    } catch (const Error& error) {
      fault = error.what();
    }
    if (!result) {
      log_.write(Kind::event, {{"kind", "no-profile"}, {"text", fault}});
      progress_.say(fmt::format("no profile: {}\n", fault));
      return;
    }
    for (const Json& record : profile_fields(*result)) log_.write(Kind::profile, record);
    footer.budget = budget(*result);
    progress_.say(profile_table(*result));
  }

  void interrupted(runlog::Footer& footer) const {
    const bool time_limit = stop_.load() == SIGUSR1;
    const bool measured =
        std::ranges::any_of(samples_, [](const auto& sample) { return !sample.warmup; });
    if (time_limit && !measured) return fail(footer, ExitCode::timeout, "time limit near");
    footer.status = measured ? Status::partial : Status::failed;
    footer.reason = time_limit ? "time limit near" : "interrupted";
  }

  void finish(runlog::Footer& footer) {
    footer.steps = runlog::statistics(samples_);
    for (auto* value :
         {&footer.steps.loss_first, &footer.steps.loss_last, &footer.steps.grad_norm_last}) {
      if (*value && !std::isfinite(**value)) value->reset();
    }
    footer.step_s_max_over_ranks = footer.steps.median_s;
    footer.wall_s = monotonic_seconds() - start_s_;
    footer.mem_peak_bytes = peak_resident_bytes();
    log_.write(Kind::footer, runlog::footer_json(footer, log_.facts()));
    progress_.end(footer);
  }

  const sweep::RunSpec& spec_;
  const std::atomic<int>& stop_;
  double start_s_;
  runlog::Writer log_;
  Progress progress_;
  std::vector<runlog::StepSample> samples_;
};

}  // namespace

int run_training(const sweep::RunSpec& spec, const std::atomic<int>& stop, double start_s) {
  return Run(spec, stop, start_s).run();
}

}  // namespace tessera::trainer
