// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/runlog/keys.h"
#include "trainer/comm/gloo/gloo.h"
#include "trainer/data/run_data.h"
#include "trainer/launch/open_store.h"
#include "trainer/run/accept.h"
#include "trainer/run/cpu_share.h"
#include "trainer/run/progress.h"
#include "trainer/run/ranks.h"
#include "trainer/run/records.h"
#include "trainer/run/run_device.h"
#include "trainer/run/run_log.h"
#include "trainer/run/run_start.h"
#include "trainer/train/loop.h"
#include "trainer/train/profile.h"

namespace tessera::trainer {

namespace {

namespace keys = runlog::keys;
using runlog::EndedBy;
using runlog::Kind;
using runlog::Status;

constexpr std::int64_t kMostStepRecords = 5000;

// One rank's run. Rank 0 writes the log. Another rank writes a log of its own only if it or another
// rank fails.
class Run {
 public:
  Run(const sweep::RunSpec& spec, const std::atomic<int>& stop, double start_s, const Place& place,
      const Environment& variable)
      : spec_(spec),
        stop_(stop),
        start_s_(start_s),
        place_(place),
        variable_(variable),
        job_(scheduler_job(variable)),
        attempt_(spec.attempt),
        progress_(spec.run_dir.empty() ? stderr : stdout) {}

  // Returns the exit code. Error(log_not_writable) if rank 0 cannot write its log.
  int run() {
    if (is_first()) begin_log();
    runlog::Footer footer;
    try {
      if (place_.ranks > 1) meet();
      train_all(footer);
    } catch (const Error& error) {
      if (is_first() && error.code() == ExitCode::log_not_writable) {
        tell_others({error.code(), error.what()});
        throw;
      }
      fail(footer, error.code(), error.what());
    } catch (const std::bad_alloc&) {
      fail(footer, ExitCode::host_oom, "out of memory");
    } catch (const std::exception& error) {
      fail(footer, ExitCode::failed, error.what());
    }
    if (is_first()) finish(footer);
    return footer.exit_code;
  }

 private:
  bool is_first() const { return place_.rank == 0; }

  // Opens rank 0's log and writes the header. The log may be of a later attempt than was asked for.
  void begin_log() {
    try {
      log_.emplace(open_log(spec_, 0, attempt_, job_.restart));
      log_->write(Kind::header, header_fields(spec_, job_.id));
    } catch (const Error& error) {
      if (place_.ranks > 1) {
        // The other ranks are waiting to meet this one: meet them, and say why it fails.
        try {
          open();
          tell_others({error.code(), error.what()});
        } catch (const Error& alone) {
          std::fputs(fmt::format("trainer: {}\n", alone.what()).c_str(), stderr);
        }
      }
      throw;
    }
    attempt_ = log_->origin().attempt;
  }

  void open() {
    store_ = open_store(
        place_, {.run_dir = spec_.run_dir, .attempt = spec_.attempt, .restart = job_.restart},
        variable_);
  }

  // Joins the store of the ranks and agrees with them on the number of the attempt.
  void meet() {
    open();
    // A run that was restarted by hand has taken the next free attempt.
    constexpr const char* kAttempt = "attempt";
    constexpr std::chrono::seconds kLimit{60};
    if (is_first()) {
      store_->set(kAttempt, std::to_string(attempt_));
    } else if (const auto attempt = parse_integer(store_->get(kAttempt, kLimit))) {
      attempt_ = static_cast<int>(*attempt);
    }
  }

  // The first reason told is the reason of all.
  void tell_others(const RankFailure& failure) {
    if (store_) store_->leave(failure_text(failure));
    if (communicator_) communicator_->abort();
  }

  // Returns another rank's failure. It waits up to moment_s, because the cause may arrive later
  // than its consequence.
  std::optional<Lost> lost(double moment_s) const {
    if (!store_) return std::nullopt;
    const double until = monotonic_seconds() + moment_s;
    while (true) {
      std::optional<Lost> lost = store_->lost();
      if (lost && lost->rank != place_.rank) return lost;
      if (lost || monotonic_seconds() >= until) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  // Ends the run because of this rank's own fault, or because another rank failed.
  void fail(runlog::Footer& footer, ExitCode code, const std::string& reason) {
    // A fault of the engine is no start-fail: the row says failed, the exit code is 18.
    const ExitCode known =
        static_cast<int>(code) < static_cast<int>(ExitCode::spec) ? ExitCode::failed : code;
    const bool by_connection = known == ExitCode::comm_error;
    // Before the first step all ranks may find the same fault: then rank 0 says it for all.
    const bool may_be_alike = !is_first() && communicator_ == nullptr;
    constexpr double kReasonSeconds = 3;
    constexpr double kAlikeSeconds = 0.3;
    const auto other = lost(by_connection ? kReasonSeconds : may_be_alike ? kAlikeSeconds : 0);
    RankFailure failure{known, reason};
    bool is_said = false;
    if (other) {
      const RankFailure first = failure_in(other->reason);
      is_said = other->rank == 0 && first.reason == reason;
      if (by_connection)
        failure = {first.code, fmt::format("rank {}: {}", other->rank, first.reason)};
    }
    footer.status = status_of(failure.code);
    footer.ended_by = runlog::ended_by_of(footer.status);
    footer.reason = failure.reason;
    footer.exit_code = static_cast<int>(is_first() ? failure.code : known);
    tell_others(failure);
    if (!is_said) say(footer, status_of(known));
  }

  // Says the fault on stderr and, on another rank than the first, in the rank's log.
  void say(const runlog::Footer& footer, Status kind) {
    const std::string who = is_first() ? "" : fmt::format("rank {}: ", place_.rank);
    std::fputs(fmt::format("trainer: {}{}\n", who, footer.reason).c_str(), stderr);
    if (is_first()) return;
    try {
      open_log(spec_, place_.rank, attempt_, job_.restart)
          .write(Kind::event, {{keys::kind, to_text(kind)}, {keys::text, footer.reason}});
    } catch (const Error& error) {
      std::fputs(fmt::format("trainer: {}{}\n", who, error.what()).c_str(), stderr);
    }
  }

  // Ends with a fault that every rank finds: rank 0 says it for all.
  void end_alike(runlog::Footer& footer, ExitCode code, const std::string& reason) const {
    footer.status = status_of(code);
    footer.ended_by = runlog::ended_by_of(footer.status);
    footer.exit_code = static_cast<int>(code);
    footer.reason = reason;
    if (is_first()) std::fputs(fmt::format("trainer: {}\n", reason).c_str(), stderr);
  }

  // Writes a record, on rank 0 only.
  void write(Kind kind, const Json& fields) {
    if (log_) log_->write(kind, fields);
  }

  // The run in order: accept the specification, open the device, exchange facts, check data,
  // measure the peak, plan memory, make the engine, write the records of what runs, train, profile.
  void train_all(runlog::Footer& footer) {
    accept(spec_, place_);
    const comm::GlooModule* const gloo =
        place_.ranks > 1 ? &open_gloo(gloo_module_path()) : nullptr;
    gpu_ = open_run_gpu(spec_);
    const DeviceInfo machine = gpu_ ? gpu_->info() : cpu_device(1)->info();
    const std::vector<RankFacts> ranks =
        exchange_facts(store_.get(), place_,
                       facts_of(spec_, place_, machine.name, machine.memory_bytes, variable_));
    require_alike(ranks);
    // `spec` has the number of threads that runs. spec_ stays as it was asked for.
    sweep::RunSpec spec = spec_;
    if (spec.point.threads == 0 && !gpu_) spec.point.threads = cpus_of(ranks, place_.rank);
    const int threads = gpu_ ? 0 : threads_of(spec.point);

    // A wrong token file or device ends the run before memory is planned.
    const RunData data = open_data(spec.point);
    const std::unique_ptr<Device> cpu = gpu_ ? nullptr : cpu_device(threads);
    Device& device = gpu_ ? *gpu_ : *cpu;
    expect_device(spec, device.info().name);
    const MeasuredPeak peak =
        gpu_ ? gpu_peak(spec_, *gpu_)
             : common_peak(peak_of(spec_, threads), data, spec_, store_.get(), place_);

    // Plan the memory, wrap the device if it is to be profiled, and connect the ranks.
    const Setup setup = setup_of(spec, run_capacity(spec_, gpu_.get(), memory_of_rank(ranks)));
    std::optional<ProfilingDevice> profiling;
    if (spec.profile) profiling.emplace(device);
    Device& used = profiling ? *profiling : device;
    communicator_ = gloo == nullptr ? single_communicator()
                                    : gloo_communicator(*gloo, place_.rank, place_.ranks, *store_,
                                                        {.host = host_of(ranks, place_.rank)});
    // Read the GPU's facts before building the engine: a GPU in error would answer with that error
    // only, and hide what went wrong.
    std::vector<Json> hosts = host_fields(ranks);
    for (Json& node : hosts) {
      if (gpu_) node.update(gpu_fields(*gpu_));
    }
    const auto write_hosts = [&] {
      for (const Json& node : hosts) write(Kind::host, node);
    };
    std::optional<Engine> made;
    try {
      require_memory(setup, ranks);
      made.emplace(used, *communicator_, setup, data.tokens);
    } catch (const Error&) {
      // The engine found too little memory, for instance: the log at least says on what.
      write_hosts();
      write(Kind::peak, peak_fields(peak));
      throw;
    }
    // What runs is decided. Write it down before the first step.
    Engine& engine = *made;
    write(Kind::model, model_fields(spec, engine.config()));
    Json effective = effective_fields(spec, engine, threads, gpu_.get());
    if (data.file) effective.update(data_fields(*data.file));
    write(Kind::effective, effective);
    write_hosts();
    for (const Json& part : software_fields(device.info(), gpu_.get())) write(Kind::software, part);
    write(Kind::plan, plan_fields(engine, gpu_.get()));
    write(Kind::peak, peak_fields(peak));
    if (gpu_) {
      for (const Json& choice : choice_events(*gpu_)) write(Kind::event, choice);
      for (const std::string& note : gpu_->notes())
        write(Kind::event, {{keys::kind, "note"}, {keys::text, note}});
    }
    cost_of(engine, spec_.point, footer);
    steps(engine, device.info(), footer);
    if (profiling && footer.status == Status::ok) profile(engine, *profiling, footer);
  }

  // On a GPU the steps asked for are minima, unless they are exact.
  static PaceRules pace_of(const sweep::Point& point, const DeviceInfo& device) {
    const bool exact = point.exact_steps || device.kind == "cpu";
    return exact ? exact_pace(point.steps, point.warmup) : gpu_pace(point.steps, point.warmup);
  }

  // Trains, and merges what the ranks measured. Time, memory and CPU share are the worst of all
  // ranks.
  void steps(Engine& engine, const DeviceInfo& device, runlog::Footer& footer) {
    Pace pace(pace_of(spec_.point, device));
    samples_.reserve(static_cast<std::size_t>(pace.most_steps()));
    // A long run writes only every n-th step, so that its log has at most kMostStepRecords of them.
    const std::int64_t every = std::max<std::int64_t>(
        spec_.log_every, (pace.most_steps() + kMostStepRecords - 1) / kMostStepRecords);
    const double startup_s = monotonic_seconds() - start_s_;
    if (is_first()) progress_.begin(spec_, engine.plan().total_bytes(), pace.is_exact());
    std::optional<CpuTimes> before;
    const LoopEnd end = train(engine, pace, stop_, samples_,
                              {.measuring =
                                   [&] {
                                     if (device.kind == "cpu") before = cpu_times();
                                     if (gpu_) gpu_->watch();
                                   },
                               .sample =
                                   [&](const runlog::StepSample& sample) {
                                     if (!is_first()) return;
                                     if (sample.step % every == 0)
                                       write(Kind::step, step_fields(sample));
                                     progress_.step(sample);
                                   }});
    const runlog::StepStatistics own = runlog::statistics(samples_);
    if (gpu_) look_at_gpu(engine, own, footer);
    // A collective: all ranks have ended behind the same step. A share of 2 means unknown.
    worst_ = worst_of(*communicator_, {.measured_s = own.measured_s,
                                       .median_s = own.median_s.value_or(0),
                                       .data_wait_s = own.data_wait_s,
                                       .startup_s = startup_s,
                                       .mem_peak_bytes = static_cast<double>(peak_bytes(engine)),
                                       .cpu_share = cpu_share(before, cpu_times()).value_or(2)});
    footer.startup_s = worst_->startup_s;
    if (worst_->cpu_share <= 1) footer.cpu_share = worst_->cpu_share;
    switch (end.kind) {
      case LoopEnd::Kind::complete:
        footer.status = Status::ok;
        footer.ended_by = EndedBy::completed;
        return;
      case LoopEnd::Kind::not_finite:
        return end_alike(footer, ExitCode::nan, end.what);
      case LoopEnd::Kind::interrupted:
        return interrupted(footer, end.signal);
    }
  }

  // Returns the peak of the GPU's memory or, on a CPU, of the process's resident memory.
  std::int64_t peak_bytes(const Engine& engine) const {
    return gpu_ ? engine.plan().device_bytes() + gpu_->unplanned_bytes() : peak_resident_bytes();
  }

  // Records how the GPU did during the measured steps, and warns.
  void look_at_gpu(const Engine& engine, const runlog::StepStatistics& steps,
                   runlog::Footer& footer) {
    const GpuWatch seen = gpu_->watched();
    add(seen, footer);
    gpu_peak_bytes_ = peak_bytes(engine);
    warn("unplanned", unplanned_text(spec_, *gpu_));
    warn("host-bound", host_bound_text(seen, steps));
    warn("shared-gpu", shared_gpu_text(seen));
  }

  // Writes the warning as an event and prints it.
  void warn(const char* kind, const std::optional<std::string>& text) {
    if (!text) return;
    write(Kind::event, {{keys::kind, kind}, {keys::text, *text}});
    progress_.say(*text + "\n");
  }

  // Profiles after everything is measured: whatever happens here, the run's figures stand.
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
      write(Kind::event, {{keys::kind, "no-profile"}, {keys::text, fault}});
      progress_.say(fmt::format("no profile: {}\n", fault));
      return;
    }
    for (const Json& record : profile_fields(*result)) write(Kind::profile, record);
    footer.budget = budget(*result);
    progress_.say(profile_table(*result));
  }

  // Ends the run as a signal asked for. SIGUSR1 means that the time limit is near.
  void interrupted(runlog::Footer& footer, int signal) const {
    const bool time_limit = signal == SIGUSR1;
    const bool measured =
        std::ranges::any_of(samples_, [](const auto& sample) { return !sample.warmup; });
    if (time_limit && !measured) return end_alike(footer, ExitCode::timeout, "time limit near");
    footer.status = measured ? Status::partial : Status::failed;
    footer.ended_by = time_limit ? EndedBy::time_limit : EndedBy::interrupted;
    footer.reason = time_limit ? "time limit near" : "interrupted";
  }

  // Completes the footer on rank 0 and ends the log.
  void finish(runlog::Footer& footer) {
    footer.steps = runlog::statistics(samples_);
    // What is not finite is left out.
    for (auto* value :
         {&footer.steps.loss_first, &footer.steps.loss_last, &footer.steps.grad_norm_last}) {
      if (*value && !std::isfinite(**value)) value->reset();
    }
    footer.step_s_max_over_ranks = footer.steps.median_s;
    footer.wall_s = monotonic_seconds() - start_s_;
    footer.mem_peak_bytes = gpu_peak_bytes_;
    // Resident memory is the host's: it is no figure of a GPU's run.
    if (!footer.mem_peak_bytes && spec_.point.gpu == "cpu")
      footer.mem_peak_bytes = peak_resident_bytes();
    // The times are those of the slowest rank.
    if (worst_ && footer.steps.measured > 0) {
      footer.steps.measured_s = worst_->measured_s;
      footer.steps.data_wait_s = worst_->data_wait_s;
      footer.step_s_max_over_ranks = worst_->median_s;
    }
    if (worst_)
      footer.mem_peak_bytes = std::max(footer.mem_peak_bytes.value_or(0),
                                       static_cast<std::int64_t>(worst_->mem_peak_bytes));
    log_->end(footer);
    progress_.end(footer);
  }

  const sweep::RunSpec& spec_;
  const std::atomic<int>& stop_;
  const double start_s_;
  const Place place_;
  const Environment& variable_;
  const SchedulerJob job_;
  int attempt_ = 1;
  std::optional<runlog::Writer> log_;  // on rank 0
  Progress progress_;
  std::vector<runlog::StepSample> samples_;
  std::optional<RankFigures> worst_;
  std::unique_ptr<Gpu> gpu_;  // null on a CPU; outlives the engine
  std::optional<std::int64_t> gpu_peak_bytes_;
  std::unique_ptr<Store> store_;                // null with one rank; outlives the communicator
  std::unique_ptr<Communicator> communicator_;  // outlives the engine
};

}  // namespace

int run_training(const sweep::RunSpec& spec, const std::atomic<int>& stop, double start_s,
                 const Place& place, const Environment& variable) {
  return Run(spec, stop, start_s, place, variable).run();
}

}  // namespace tessera::trainer
