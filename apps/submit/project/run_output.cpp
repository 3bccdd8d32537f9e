// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/project/run_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "apps/submit/project/status.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/cluster/outcome.h"
#include "lib/jobs/live_jobs.h"
#include "lib/jobs/run_folder.h"
#include "lib/jobs/run_lookup.h"

namespace tessera::submit {

namespace fs = std::filesystem;

namespace {

// Seconds between two looks at the files.
constexpr double kFollow_s = 0.1;
constexpr double kLeastPause_s = 0.5;  // between two questions to a cluster
// Between the footer and the last word for people, where the cluster tells the end later.
constexpr double kLastWords_s = 1;

// Returns the scheduler of a cluster. Error(unreachable) says why there is none.
cluster::Scheduler& scheduler_of(jobs::Schedulers& schedulers, const std::string& name) {
  if (cluster::Scheduler* scheduler = schedulers.find(name)) return *scheduler;
  throw Error(ExitCode::unreachable, name, schedulers.why_not(name));
}

std::vector<fs::path> files_of(jobs::Schedulers& schedulers, const RunOutput& output) {
  return scheduler_of(schedulers, output.cluster)
      .outputs({.run = output.run, .attempt = output.attempt, .run_dir = output.run_dir});
}

// Returns whether a file of the attempt holds anything.
bool has_output(jobs::Schedulers& schedulers, const RunOutput& output) {
  return std::ranges::any_of(files_of(schedulers, output), [](const fs::path& file) {
    std::error_code fault;
    const auto size = fs::file_size(file, fault);
    return !fault && size > 0;
  });
}

RunOutput output_of(const fs::path& project_dir, const std::string& run,
                    const ledger::AttemptState& attempt) {
  return {.run = run,
          .attempt = attempt.attempt,
          .run_dir = project_dir / run,
          .cluster = attempt.cluster,
          .why = {}};
}

// The only one that runs, else that of the newest hand-over with output.
RunOutput newest_output(const fs::path& project_dir, jobs::Schedulers& schedulers,
                        const std::map<std::string, ledger::RunState>& states) {
  std::vector<std::string> running;
  for (const RunStatus& run : project_status(project_dir, schedulers).runs) {
    if (run.status == runlog::Status::running) running.push_back(run.run);
  }
  if (running.size() == 1) {
    RunOutput output =
        output_of(project_dir, running.front(), states.at(running.front()).attempts.back());
    output.why = "the only one that runs";
    return output;
  }
  // No run or several run: take the newest hand-over that has output.
  struct Started {
    std::string since_utc;
    RunOutput output;
  };
  std::vector<Started> started;
  for (const auto& [run, state] : states) {
    for (const ledger::AttemptState& attempt : state.attempts)
      started.push_back({attempt.since_utc, output_of(project_dir, run, attempt)});
  }
  std::ranges::stable_sort(started, std::ranges::greater{}, &Started::since_utc);
  for (Started& each : started) {
    // One cluster that is not known any more hides no other's runs.
    if (schedulers.find(each.output.cluster) == nullptr) continue;
    if (!has_output(schedulers, each.output)) continue;
    each.output.why =
        running.empty() ? "the newest that has output"
                        : fmt::format("{} run; the newest of all that has output", running.size());
    return each.output;
  }
  throw Error(ExitCode::empty, project_dir.filename().string(), "no run has output yet",
              "submit status tells where they stand");
}

// Throws Error(empty) with the status of the attempt and the earlier attempts that have output.
[[noreturn]] void throw_no_output(const fs::path& project_dir, jobs::Schedulers& schedulers,
                                  const RunOutput& output) {
  std::string what = fmt::format("attempt {} has no output", output.attempt);
  for (const RunStatus& run : project_status(project_dir, schedulers).runs) {
    if (run.run != output.run || run.attempt != output.attempt) continue;
    what += fmt::format(": {}{}", to_text(run.status),
                        run.reason.empty() ? "" : fmt::format(" ({})", run.reason));
  }
  std::vector<int> others;
  for (int attempt = 1; attempt < output.attempt; ++attempt) {
    RunOutput earlier = output;
    earlier.attempt = attempt;
    if (has_output(schedulers, earlier)) others.push_back(attempt);
  }
  throw Error(ExitCode::empty, output.run, what,
              others.empty() ? "" : fmt::format("--attempt {} has", fmt::join(others, ", ")));
}

// From ledger and cluster; `note` where that does not answer.
bool has_ended(const fs::path& project_dir, cluster::Scheduler& scheduler, const RunOutput& output,
               const std::function<void(const std::string&)>& note) {
  const auto states = ledger::run_states(ledger::read_ledger(project_dir));
  const auto state = states.find(output.run);
  if (state == states.end()) return true;
  const auto attempt =
      std::ranges::find(state->second.attempts, output.attempt, &ledger::AttemptState::attempt);
  if (attempt == state->second.attempts.end() || attempt->last == ledger::Op::final) return true;
  // A cluster tells of nobody else's jobs what could be believed.
  if (scheduler.queues() && attempt->user != user_name()) return false;
  const auto is_it = [&](const ledger::RunRef& ref) {
    return ref.run == output.run && ref.attempt == output.attempt;
  };
  // The ledger knows no end, so ask the cluster about the job of the attempt.
  for (const jobs::LiveJob& live :
       jobs::live_jobs(project_dir, states, attempt->user, output.cluster)) {
    if (std::ranges::none_of(live.refs, is_it)) continue;
    try {
      const auto answers = scheduler.query(std::span(&live.job, 1));
      const jobs::Reply reply = scheduler.queues() ? jobs::Reply::may_come : jobs::Reply::is_lost;
      const jobs::Resolved resolved =
          jobs::resolve(live, answers.front(), reply, jobs::cancelled_in(states));
      return std::ranges::any_of(resolved.ended, [&](const jobs::Ended& ended) {
        return is_it(ended.entry.runs.front());
      });
    } catch (const Error& error) {
      if (error.code() != ExitCode::unreachable) throw;
      note(fmt::format("{} does not answer: {}; asking again", output.cluster, error.what()));
      return false;
    }
  }
  return true;
}

}  // namespace

RunOutput choose_output(const fs::path& project_dir, jobs::Schedulers& schedulers,
                        const std::string& text, int attempt) {
  const ledger::Contents contents = ledger::read_ledger(project_dir);
  if (contents.entries.empty()) {
    ledger::require_undamaged(contents);
    throw Error(ExitCode::empty, project_dir.string(), "nothing was submitted here",
                jobs::kWhereIsIt);
  }
  const auto states = ledger::run_states(contents);
  RunOutput output;
  if (text.empty()) {
    output = newest_output(project_dir, schedulers, states);
    if (attempt == 0) return output;
  } else {
    output.run = jobs::find_run(text, jobs::known_runs(contents), project_dir.filename().string());
  }
  // The run is known. Find the attempt that was asked for, or the newest.
  const auto found = states.find(output.run);
  if (found == states.end() || found->second.attempts.empty())
    throw Error(ExitCode::empty, output.run, "was never started", "submit its sweep with --RUN");
  const auto& attempts = found->second.attempts;
  const auto asked = attempt == 0
                         ? std::prev(attempts.end())
                         : std::ranges::find(attempts, attempt, &ledger::AttemptState::attempt);
  if (asked == attempts.end()) {
    std::vector<int> numbers;
    for (const ledger::AttemptState& each : attempts) numbers.push_back(each.attempt);
    throw Error(ExitCode::empty, output.run, fmt::format("had no attempt {}", attempt),
                fmt::format("it had {}", fmt::join(numbers, ", ")));
  }
  std::string why = std::move(output.why);
  output = output_of(project_dir, output.run, *asked);
  output.why = std::move(why);
  return output;
}

void OutputPrinter::print(const fs::path& file, std::string_view bytes, bool heading) {
  if (heading && last_ != file) {
    if (line_open_) sink_("\n");
    sink_(fmt::format("==> {} <==\n", file.filename().string()));
  }
  last_ = file;
  sink_(bytes);
  line_open_ = bytes.back() != '\n';
}

bool OutputPrinter::print_new(std::span<const fs::path> files) {
  const auto is_there = [](const fs::path& file) {
    std::error_code fault;
    const auto size = fs::file_size(file, fault);
    return !fault && size > 0;
  };
  const bool several = std::ranges::count_if(files, is_there) > 1 || seen_.size() > 1;
  bool any = false;
  for (const fs::path& path : files) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) {
      if (errno == ENOENT) continue;
      throw_errno(path, "cannot be read", errno);
    }
    struct stat now{};
    if (::fstat(file.get(), &now) != 0) throw_errno(path, "cannot be read", errno);
    if (now.st_size == 0) continue;
    Seen& seen = seen_[path];
    // Another inode, or fewer bytes than were printed: the file begins anew.
    const bool same = seen.device == now.st_dev && seen.inode == now.st_ino;
    if (!same || now.st_size < seen.printed)
      seen = {.device = now.st_dev, .inode = now.st_ino, .printed = 0};
    std::array<char, 1 << 16> block{};
    while (true) {
      const ssize_t got = ::pread(file.get(), block.data(), block.size(), seen.printed);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw_errno(path, "cannot be read", errno);
      if (got == 0) break;
      seen.printed += got;
      any = true;
      print(path, {block.data(), static_cast<std::size_t>(got)}, several);
    }
  }
  return any;
}

void print_output(const fs::path& project_dir, jobs::Schedulers& schedulers,
                  const RunOutput& output, const OutputPrinter::Sink& sink) {
  OutputPrinter printer(sink);
  if (!printer.print_new(files_of(schedulers, output)))
    throw_no_output(project_dir, schedulers, output);
}

void follow_output(const fs::path& project_dir, jobs::Schedulers& schedulers,
                   const RunOutput& output, const OutputPrinter::Sink& sink,
                   const std::function<void(const std::string&)>& note) {
  cluster::Scheduler& scheduler = scheduler_of(schedulers, output.cluster);
  OutputPrinter printer(sink);
  bool silent = false;
  const auto note_once = [&](const std::string& text) {
    if (!silent) note(text);
    silent = true;
  };
  // The files are read often and the cluster is asked seldom. A footer is reason to ask at once.
  double next_question_s = monotonic_seconds();
  std::optional<double> footer_s;
  bool over = false;
  while (true) {
    const bool any = printer.print_new(files_of(schedulers, output));
    // What it printed before its end is there when its end is known.
    if (over && !any) break;
    if (over) continue;
    const double now = monotonic_seconds();
    if (!footer_s && cluster::has_footer(output.run_dir, output.attempt)) {
      footer_s = now;
      next_question_s = now;
    }
    over = footer_s && now - *footer_s > kLastWords_s;
    if (!over && now >= next_question_s) {
      over = has_ended(project_dir, scheduler, output, note_once);
      next_question_s = monotonic_seconds() + std::max(scheduler.poll_s(), kLeastPause_s);
    }
    if (!over) std::this_thread::sleep_for(std::chrono::duration<double>(kFollow_s));
  }
  if (!printer.has_printed()) throw_no_output(project_dir, schedulers, output);
}

}  // namespace tessera::submit
