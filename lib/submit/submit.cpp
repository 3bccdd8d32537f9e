#include "lib/submit/submit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/ledger/ledger.h"
#include "lib/ledger/lock.h"
#include "lib/ledger/state.h"
#include "lib/submit/job_of.h"
#include "lib/submit/live_jobs.h"
#include "lib/submit/oom.h"
#include "lib/submit/plan_lines.h"
#include "lib/submit/preparation.h"
#include "lib/submit/schedulers.h"
#include "lib/submit/settle.h"
#include "lib/sweep/point_values.h"

namespace tessera::submit {

namespace fs = std::filesystem;
using cluster::JobState;
using cluster::Submission;

namespace {

constexpr double kLongestPollFactor = 6;
constexpr double kPollGrowth = 1.5;
constexpr int kBusyTries = 6;  // 1 + 2 + 4 + 8 + 16 + 32 s
constexpr double kSlice_s = 0.2;

// The next number that neither ledger nor folder has used.
int free_attempt(const fs::path& run_dir, int attempt) {
  while (fs::exists(run_dir / fmt::format("run.{}.json", attempt)) ||
         fs::exists(run_dir / runlog::log_file_name(attempt, 0, 0))) {
    ++attempt;
  }
  return attempt;
}

void count(SubmitReport& report, const Choice& choice) {
  switch (choice.verdict) {
    case Verdict::done:
      if (choice.status == runlog::Status::ok) {
        ++report.ok_before;
      } else {
        ++report.not_ok_before[*choice.status];
      }
      break;
    case Verdict::unselected:
    case Verdict::exhausted:
      ++report.unselected;
      break;
    case Verdict::others:
      ++report.others;
      break;
    case Verdict::start:
    case Verdict::running:
      break;
  }
}

// 1 +- a tenth: many submits that wait for one cluster do not ask it all at once.
double jitter() {
  thread_local std::minstd_rand random(std::random_device{}());
  return std::uniform_real_distribution(0.9, 1.1)(random);
}

class Submitter {
 public:
  // `known`: the ledger as it is now.
  Submitter(cluster::Scheduler& scheduler, const SubmitOptions& options, const SubmitEvents& events,
            const std::atomic<bool>& interrupted, ledger::Contents known)
      : scheduler_(scheduler),
        options_(options),
        events_(events),
        interrupted_(interrupted),
        project_dir_(options.workspace / options.project),
        known_(std::move(known)),
        ledger_(project_dir_, user_name(), host_name()),
        preparation_(options, scheduler.cluster(), events, interrupted),
        wall_(options.stop_axis_after_oom),
        stays_(options.wait || !scheduler.queues()) {}

  SubmitReport run(const sweep::Expansion& plan) {
    settle_what_was();
    select_runs(plan);
    const double start_s = monotonic_seconds();
    next_poll_s_ = start_s;
    while (true) {
      if (stays_ && !live_.empty()) poll_if_due();
      const bool more = start_some();
      show_progress();
      if (more) continue;
      if (finished()) break;
      const double until_next_s = not_before_s_ - monotonic_seconds();
      const double slice_s = std::min(scheduler_.poll_s(), kSlice_s);
      pause(until_next_s > 0 ? std::min(slice_s, until_next_s) : slice_s);
    }
    report_.not_started += runs_in(waiting_);
    for (const LiveJob& live : live_) report_.on_cluster += static_cast<int>(live.refs.size());
    report_.gave_up = gave_up_;
    if (fault_ && scheduler_.queues() && report_.started > 0) {
      note(fmt::format("{} run{} in {} job{} were handed over before this", report_.started,
                       report_.started == 1 ? "" : "s", report_.jobs,
                       report_.jobs == 1 ? "" : "s"));
    }
    if (fault_) std::rethrow_exception(fault_);
    return report_;
  }

 private:
  struct Waiting {
    std::vector<ledger::RunRef> refs;
    RunShape shape;
    bool array = false;
    std::int64_t time_limit_s = 0;
    int replies_lost = 0;
  };

  static int runs_in(const std::deque<Waiting>& jobs) {
    int runs = 0;
    for (const Waiting& job : jobs) runs += static_cast<int>(job.refs.size());
    return runs;
  }

  void note(const std::string& text) const {
    if (events_.note) events_.note(text);
  }

  const std::string& cluster_name() const { return scheduler_.cluster().name; }

  // Before anything else: what earlier submits left, and where their jobs are now.
  void settle_what_was() {
    const auto states = ledger::run_states(known_);
    const std::vector<ledger::Entry> lost = lost_results(project_dir_, states);
    if (!lost.empty()) ledger_.append(lost);
    live_ = live_jobs(project_dir_, states, user_name(), cluster_name());
    is_settled_ = lost.empty() && live_.empty();
    live_ = settle(
        std::move(live_), scheduler_, cancelled_in(states), interrupted_,
        [&](const ledger::Entry& entry) { ledger_.append(entry); },
        [&](const Ended& ended) { ledger_.append(ended.entry); },
        [&](const std::string& text) { note(text); });
    // Nobody here can wait for those.
    for (const LiveJob& live : live_) {
      if (live.elsewhere)
        note(fmt::format("{} runs on {}, which cannot be asked from here", live.job.name,
                         live.job.host));
    }
    std::erase_if(live_, [](const LiveJob& live) { return live.elsewhere; });
    if (interrupted_)
      throw Error(ExitCode::interrupted, "", "interrupted", "nothing was submitted");
  }

  void select_runs(const sweep::Expansion& plan) {
    // Large ledgers take longer to read than all else, so once where that is enough.
    const ledger::Contents contents =
        is_settled_ ? std::move(known_) : ledger::read_ledger(project_dir_);
    const auto planned = planned_points(plan, options_.project, options_.repeats);
    // What is run again was planned before, and by whom and when is for its own plan to say.
    if (options_.select.named.empty()) append_plan(ledger_, contents, planned, plan.dropped);
    const auto states = ledger::run_states(contents);
    const auto choices = select(planned, states, options_.select, user_name());
    require_named_free(choices, states, options_.select);
    for (const Choice& choice : choices) {
      points_[choice.ref.run] = &plan.points[choice.point];
      if (is_out_of_memory(choice.status)) wall_.ran_out(plan.points[choice.point].point);
    }
    int adopted = 0;
    for (const LiveJob& live : live_) adopted += static_cast<int>(live.refs.size());
    if (events_.selected) events_.selected(choices, adopted);

    std::vector<RunToPlace> to_place;
    std::vector<ledger::RunRef> refs;
    for (const Choice& choice : choices) {
      count(report_, choice);
      if (choice.verdict != Verdict::start || is_beyond_wall(choice.ref.run)) continue;
      const sweep::Planned& point = plan.points[choice.point];
      ledger::RunRef ref = choice.ref;
      ref.attempt = free_attempt(project_dir_ / ref.run, ref.attempt);
      preparation_.add(point, ref);
      to_place.push_back(place_of(point, options_));
      refs.push_back(std::move(ref));
    }
    progress_.total = static_cast<int>(refs.size()) + adopted;
    require_budget(to_place);
    for (const JobGroup& group : group_jobs(to_place, grouping_of(scheduler_, options_))) {
      Waiting& job = waiting_.emplace_back();
      job.shape = to_place[group.runs.front()].shape;
      job.array = group.array;
      job.time_limit_s = group.time_limit_s;
      for (const std::size_t run : group.runs) job.refs.push_back(refs[run]);
    }
    // What was handed over before counts among what is in flight.
    for (const LiveJob& live : live_) chain_.push_back(live.job.job);
  }

  static bool is_out_of_memory(const std::optional<runlog::Status>& status) {
    return status == runlog::Status::oom || status == runlog::Status::host_oom;
  }

  // Then the ledger says why it is not tried.
  bool is_beyond_wall(const std::string& run) {
    const sweep::Planned& point = *points_.at(run);
    const auto reason = wall_.beyond(point.point);
    if (!reason) return false;
    ++report_.skipped;
    ledger::Entry entry;
    entry.op = ledger::Op::plan;
    const auto values = sweep::values_of(point.point);
    entry.dropped.push_back({.label = point.label,
                             .reason = std::string(to_text(sweep::DropReason::memory)),
                             .detail = *reason,
                             .values = {values.begin(), values.end()}});
    ledger_.append(std::move(entry));
    return true;
  }

  // Of what would be handed over now, before any of it is.
  void require_budget(std::span<const RunToPlace> runs) const {
    if (options_.max_gpu_hours <= 0) return;
    double hours = 0;
    for (const RunToPlace& run : runs) {
      const double seconds = run.seconds > 0 ? run.seconds : static_cast<double>(run.time_limit_s);
      if (run.shape.gpu != "cpu") hours += seconds * static_cast<double>(run.shape.ranks) / 3600;
    }
    if (hours <= options_.max_gpu_hours) return;
    throw Error(ExitCode::refused, "--max-gpu-hours",
                fmt::format("{:.1f} GPU-hours are expected, {:.1f} may be spent", hours,
                            options_.max_gpu_hours),
                "fewer points, or a larger budget; nothing was submitted");
  }

  bool finished() const {
    const bool no_more = waiting_.empty() || stopped();
    if (!no_more) return false;
    if (!stays_) return true;
    // On a cluster jobs go on without us.
    if (scheduler_.queues() && (interrupted_ || fault_)) return true;
    const bool all_stuck =
        std::ranges::all_of(live_, [&](const LiveJob& live) { return is_stuck(live); });
    return live_.empty() || all_stuck;
  }

  bool stopped() const { return interrupted_ || fault_ != nullptr || gave_up_; }

  bool is_stuck(const LiveJob& live) const { return stuck_.contains(live.job.job); }

  // Hands over what may be now. Whether there is more that may be handed over at once.
  bool start_some() {
    while (!waiting_.empty() && !stopped()) {
      // What will never start keeps nothing else from starting.
      const auto in_flight =
          std::ranges::count_if(live_, [&](const LiveJob& live) { return !is_stuck(live); });
      const bool full = stays_ && options_.in_flight > 0 && in_flight >= options_.in_flight;
      if (full || monotonic_seconds() < not_before_s_) return false;
      try {
        if (!start_next()) return false;
      } catch (...) {
        fault_ = std::current_exception();
        return false;
      }
      // Ends are seen and shown between hand-overs too.
      if (stays_) return true;
      show_progress();
    }
    if (interrupted_ && !scheduler_.queues()) tell_to_end();
    return false;
  }

  std::vector<std::string> runs_before() const {
    const auto most = static_cast<std::size_t>(options_.in_flight);
    if (stays_ || most == 0 || chain_.size() < most) return {};
    return {chain_[chain_.size() - most]};
  }

  std::optional<Company> company() const {
    if (scheduler_.queues()) return std::nullopt;
    const int now = static_cast<int>(live_.size());
    const int rest = runs_in(waiting_) - 1;
    const int most = std::min(options_.in_flight - 1, now + rest);
    return Company{.running = now, .shared_with = std::max(now, most)};
  }

  // False: not now.
  bool start_next() {
    Waiting& next = waiting_.front();
    // What has run out of memory since.
    std::erase_if(next.refs, [&](const ledger::RunRef& ref) { return is_beyond_wall(ref.run); });
    if (next.refs.empty()) {
      waiting_.pop_front();
      return true;
    }
    cluster::Job job =
        job_of(options_.project, next.refs, next.shape, next.array, next.time_limit_s);
    job.after = runs_before();
    for (const ledger::RunRef& ref : next.refs) {
      job.runs.push_back(preparation_.start_of(ref, company(), in_job_of(job, next.refs.size())));
    }
    if (interrupted_) return false;

    LiveJob live;
    live.cluster = cluster_name();
    live.job.name = job.name;
    live.job.host = host_name();
    live.job.since_utc = utc_now();
    live.array = job.array;
    live.refs = next.refs;
    for (std::size_t i = 0; i < job.runs.size(); ++i) {
      live.job.runs.push_back({job.runs[i].run, job.runs[i].attempt, job.runs[i].run_dir});
      live.indices.push_back(i);
    }
    ledger::Entry intent;
    intent.op = ledger::Op::intent;
    intent.cluster = cluster_name();
    intent.name = job.name;
    intent.array = job.array;
    intent.runs = next.refs;
    const Waiting taken = std::move(next);
    waiting_.pop_front();
    ledger_.append(intent);
    return hand_over(job, live, taken);
  }

  bool hand_over(const cluster::Job& job, LiveJob& live, const Waiting& taken) {
    const auto count_started = [&] {
      report_.started += static_cast<int>(live.refs.size());
      ++report_.jobs;
      ++progress_.submitted;
      if (options_.rate_per_s > 0) not_before_s_ = monotonic_seconds() + 1 / options_.rate_per_s;
    };
    bool cluster_has_it = false;
    const auto accepted = [&](const std::string& id) {
      cluster_has_it = true;
      for (LiveJob& known : confirmed(live, id)) {
        ledger::Entry entry;
        entry.op = ledger::Op::accepted;
        entry.cluster = cluster_name();
        entry.job = known.job.job;
        entry.runs = known.refs;
        ledger_.append(entry);
        chain_.push_back(known.job.job);
        live_.push_back(std::move(known));
      }
    };
    const std::size_t before = live_.size();
    for (int tries = 0;; ++tries) {
      Submission answer;
      try {
        answer = scheduler_.submit(job, accepted);
      } catch (const Error& error) {
        const bool may_answer_later = error.code() == ExitCode::unreachable && stays_ &&
                                      scheduler_.queues() && !cluster_has_it;
        if (!may_answer_later) {
          live_.resize(before);
          if (scheduler_.queues() && !cluster_has_it)
            give_back(live, runlog::Status::missing, "it could not be handed over");
          throw;
        }
        put_back(live, taken, fmt::format("{} did not answer", cluster_name()));
        if (!silent_)
          note(fmt::format("{} does not answer: {}; asking again", cluster_name(), error.what()));
        silent_ = true;
        not_before_s_ = monotonic_seconds() + scheduler_.poll_s() * jitter();
        return false;
      } catch (...) {
        // On this machine nothing runs then. What a cluster has and the ledger could not take is
        // found by its name the next time.
        live_.resize(before);
        if (scheduler_.queues() && !cluster_has_it)
          give_back(live, runlog::Status::missing, "it could not be handed over");
        throw;
      }
      switch (answer.kind) {
        case Submission::Kind::accepted:
          count_started();
          return true;
        case Submission::Kind::refused:
          give_back(live, runlog::Status::missing,
                    fmt::format("{} refused it: {}", cluster_name(), answer.text));
          report_.refused += static_cast<int>(live.refs.size());
          note(fmt::format("{} refused {}: {}", cluster_name(), job.name, answer.text));
          if (++refused_jobs_ >= options_.max_failures) gave_up_ = true;
          return true;
        case Submission::Kind::busy:
          if (stays_ && !live_.empty()) {
            // Room comes as jobs end.
            put_back(live, taken, fmt::format("{} was full", cluster_name()));
            not_before_s_ = monotonic_seconds() + scheduler_.poll_s() * jitter();
            return false;
          }
          if (tries + 1 >= kBusyTries || interrupted_) {
            put_back(live, taken, fmt::format("{} was busy: {}", cluster_name(), answer.text));
            note(fmt::format("{} takes no more now: {}", cluster_name(), answer.text));
            gave_up_ = true;
            return true;
          }
          if (tries == 0) note(fmt::format("{} is busy: {}", cluster_name(), answer.text));
          pause(std::exp2(tries) * busy_unit_s() * jitter());
          if (interrupted_) {
            put_back(live, taken, fmt::format("{} was busy: {}", cluster_name(), answer.text));
            return false;
          }
          continue;
        case Submission::Kind::lost:
          note(fmt::format("no answer for {} ({}): looking for it", job.name, answer.text));
          return look_up(live, taken, count_started);
      }
    }
  }

  // A cluster that is asked often in tests is tried again as quickly.
  double busy_unit_s() const { return std::min(1.0, scheduler_.poll_s()); }

  bool look_up(const LiveJob& live, const Waiting& taken, const std::function<void()>& started) {
    const std::vector<LiveJob> found = settle(
        {live}, scheduler_, [](const ledger::RunRef&) { return false; }, interrupted_,
        [&](const ledger::Entry& entry) { ledger_.append(entry); },
        [&](const Ended& ended) {
          // What the cluster never had is handed over again: no end to be shown.
          if (ended.outcome.status == runlog::Status::missing) {
            ledger_.append(ended.entry);
          } else {
            take(ended);
          }
        },
        [&](const std::string& text) { note(text); });
    if (!found.empty() && found.front().confirmed) {
      for (const LiveJob& job : found) {
        chain_.push_back(job.job.job);
        live_.push_back(job);
      }
      started();
      return true;
    }
    if (interrupted_) return false;
    // It has ended already, or the cluster never had it: the ledger says which.
    const auto states = ledger::run_states(ledger::read_ledger(project_dir_));
    const auto& attempts = states.at(live.refs.front().run).attempts;
    const bool had_it = std::ranges::any_of(attempts, [&](const ledger::AttemptState& attempt) {
      return attempt.attempt == live.refs.front().attempt && attempt.confirmed;
    });
    if (had_it) {
      started();
      return true;
    }
    if (taken.replies_lost + 1 >= options_.max_failures) {
      gave_up_ = true;
      report_.not_started += static_cast<int>(live.refs.size());
      note(fmt::format("{} never answers", cluster_name()));
      return true;
    }
    again(taken, 1);
    return true;
  }

  // As a new attempt, at the head of what waits.
  void again(const Waiting& taken, int replies_lost) {
    Waiting next = taken;
    next.replies_lost += replies_lost;
    for (ledger::RunRef& ref : next.refs)
      ref.attempt = free_attempt(project_dir_ / ref.run, ref.attempt + 1);
    waiting_.push_front(std::move(next));
  }

  void put_back(const LiveJob& live, const Waiting& taken, const std::string& reason) {
    give_back(live, runlog::Status::missing, reason);
    again(taken, 0);
  }

  // The cluster has not got it: its attempts end here.
  void give_back(const LiveJob& live, runlog::Status status, const std::string& reason) {
    for (const ledger::RunRef& ref : live.refs) {
      ledger::Entry entry;
      entry.op = ledger::Op::final;
      entry.cluster = cluster_name();
      entry.runs = {ref};
      entry.status = status;
      entry.reason = reason;
      ledger_.append(entry);
    }
  }

  void poll_if_due() {
    const double now = monotonic_seconds();
    // A footer is there before its job's end is known to the cluster: the next question comes
    // sooner.
    const double look_every_s = std::max(kSlice_s, scheduler_.poll_s() / 3);
    if (scheduler_.queues() && now < next_poll_s_ && now >= last_look_s_ + look_every_s) {
      last_look_s_ = now;
      if (new_footer())
        next_poll_s_ = std::min(next_poll_s_, last_poll_s_ + scheduler_.poll_s() / 3);
    }
    if (now < next_poll_s_) return;
    bool changed = false;
    try {
      changed = poll();
    } catch (const Error& error) {
      if (error.code() != ExitCode::unreachable) {
        if (!fault_) fault_ = std::current_exception();
        if (scheduler_.queues()) return;
      } else if (!silent_) {
        silent_ = true;
        note(fmt::format("{} does not answer: {}; asking again", cluster_name(), error.what()));
      }
    }
    last_poll_s_ = monotonic_seconds();
    poll_factor_ = changed || !scheduler_.queues()
                       ? 1
                       : std::min(poll_factor_ * kPollGrowth, kLongestPollFactor);
    const double wait_s = scheduler_.poll_s() * poll_factor_;
    next_poll_s_ = last_poll_s_ + (scheduler_.queues() ? wait_s * jitter() : wait_s);
  }

  bool new_footer() {
    bool found = false;
    for (const LiveJob& live : live_) {
      if (!running_.contains(live.job.job)) continue;
      for (const cluster::OpenRun& run : live.job.runs) {
        const std::string key = fmt::format("{}.{}", run.run, run.attempt);
        if (footers_.contains(key) || !cluster::has_footer(run.run_dir, run.attempt)) continue;
        footers_.insert(key);
        found = true;
      }
    }
    return found;
  }

  // Whether anything has changed.
  bool poll() {
    std::vector<cluster::OpenJob> jobs;
    for (const LiveJob& live : live_) jobs.push_back(live.job);
    const std::vector<JobState> states = scheduler_.query(jobs);
    if (silent_) note(fmt::format("{} answers again", cluster_name()));
    silent_ = false;
    std::optional<std::map<std::string, ledger::RunState>> known;
    const auto is_cancelled = [&](const ledger::RunRef& ref) {
      if (!known) known = ledger::run_states(ledger::read_ledger(project_dir_));
      return cancelled_in(*known)(ref);
    };
    progress_.pending = 0;
    progress_.running.clear();
    bool changed = false;
    std::vector<LiveJob> rest;
    for (std::size_t i = 0; i < live_.size(); ++i) {
      const JobState& state = states[i];
      const Resolved resolved = resolve(live_[i], state, Reply::may_come, is_cancelled);
      for (const ledger::Entry& entry : resolved.adopted) append_or_keep(entry);
      for (const Ended& ended : resolved.ended) take(ended);
      changed = changed || !resolved.ended.empty() || !resolved.adopted.empty();
      for (const LiveJob& live : resolved.rest) {
        show_state(live, state);
        rest.push_back(live);
      }
    }
    live_ = std::move(rest);
    return changed;
  }

  void show_state(const LiveJob& live, const JobState& state) {
    if (state.phase == JobState::Phase::pending) {
      progress_.pending += static_cast<int>(live.refs.size());
    } else {
      progress_.running.push_back(live.refs.front().run);
      running_.insert(live.job.job);
    }
    // A hold may be released.
    if (!state.never_starts && stuck_.erase(live.job.job) > 0)
      report_.never_start -= static_cast<int>(live.refs.size());
    if (state.never_starts && stuck_.insert(live.job.job).second) {
      report_.never_start += static_cast<int>(live.refs.size());
      if (events_.never_starts) events_.never_starts(live.job.name, state.reason);
    }
  }

  // An end that cannot be written down stops what is to come, but not what runs.
  void append_or_keep(const ledger::Entry& entry) {
    try {
      ledger_.append(entry);
    } catch (...) {
      if (!fault_) fault_ = std::current_exception();
    }
  }

  void take(const Ended& ended) {
    const std::string& run = ended.entry.runs.front().run;
    const bool ok = ended.outcome.status == runlog::Status::ok;
    // In its reason `cancelled` as well: figures that a person cut short.
    const bool cancelled = ended.outcome.status == runlog::Status::cancelled ||
                           ended.outcome.reason.starts_with("cancelled");
    int& counted = ok ? report_.ok : cancelled ? report_.cancelled : report_.failed;
    ++counted;
    ++(ok ? progress_.ok : progress_.failed);
    if (events_.ended) events_.ended(run, ended.outcome);
    if (const auto known = points_.find(run);
        known != points_.end() && is_out_of_memory(ended.outcome.status))
      wall_.ran_out(known->second->point);
    if (!scheduler_.queues() && preparation_.forget_peak_if_exceeded(run, ended.outcome) &&
        events_.peak_exceeded)
      events_.peak_exceeded(run);
    append_or_keep(ended.entry);
  }

  void tell_to_end() {
    if (told_to_end_) return;
    told_to_end_ = true;
    std::vector<cluster::OpenJob> jobs;
    for (const LiveJob& live : live_) jobs.push_back(live.job);
    scheduler_.cancel(jobs);
  }

  void show_progress() const {
    if (events_.progress) events_.progress(progress_);
  }

  void pause(double seconds) const {
    const double until = monotonic_seconds() + seconds;
    while (!interrupted_) {
      const double left = until - monotonic_seconds();
      if (left <= 0) return;
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kSlice_s)));
    }
    // What runs here is still to be waited for, without spinning.
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, 0.02)));
  }

  cluster::Scheduler& scheduler_;
  const SubmitOptions& options_;
  const SubmitEvents& events_;
  const std::atomic<bool>& interrupted_;
  const fs::path project_dir_;
  ledger::Contents known_;   // the ledger before anything was settled
  bool is_settled_ = false;  // nothing was to be settled: `known_` still holds
  ledger::Ledger ledger_;
  Preparation preparation_;
  OomWall wall_;
  std::map<std::string, const sweep::Planned*> points_;  // by run
  const bool stays_;

  std::deque<Waiting> waiting_;
  std::vector<LiveJob> live_;
  std::vector<std::string> chain_;  // ids of all jobs in flight and of those before, in order
  std::set<std::string> stuck_;     // ids of jobs that will never start
  std::set<std::string> footers_;   // attempts whose footers have been seen
  SubmitReport report_;
  Progress progress_;
  std::exception_ptr fault_;
  bool gave_up_ = false;
  bool told_to_end_ = false;
  bool silent_ = false;
  int refused_jobs_ = 0;
  double not_before_s_ = 0;
  std::set<std::string> running_;  // ids of jobs that were seen to run
  double last_look_s_ = 0;
  double next_poll_s_ = 0;
  double last_poll_s_ = 0;
  double poll_factor_ = 1;
};

}  // namespace

SubmitReport submit_plan(const sweep::Expansion& plan, cluster::Scheduler& scheduler,
                         const SubmitOptions& options, const SubmitEvents& events,
                         const std::atomic<bool>& interrupted) {
  const fs::path project_dir = options.workspace / options.project;
  // First what may fail without a trace: a state that cannot be written leaves no folder behind.
  ledger::require_writable_state();
  make_directories(project_dir);
  const ledger::ProjectLock lock(project_dir, user_name(), options.break_lock);
  ledger::Contents known = ledger::read_ledger(project_dir);
  ledger::require_undamaged(known);
  ledger::remember_project(options.project, options.workspace);
  keep_cluster_file(project_dir, scheduler.cluster());
  return Submitter(scheduler, options, events, interrupted, std::move(known)).run(plan);
}

}  // namespace tessera::submit
