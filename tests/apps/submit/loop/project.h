// SPDX-License-Identifier: Apache-2.0
// A project on a cluster in memory, for what is done to a project that is there already.
#pragma once

#include <atomic>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/submit/loop/submit.h"
#include "lib/base/file.h"
#include "lib/jobs/schedulers.h"
#include "lib/point/identity.h"
#include "lib/runlog/writer.h"
#include "tests/apps/submit/loop/fake_scheduler.h"
#include "tests/apps/submit/loop/tiny_plan.h"
#include "tests/lib/runlog/samples.h"
#include "tests/temporary.h"

namespace tessera::test {

// What `call` throws, which must have this code.
template <class Call>
std::string fault_of(const Call& call, ExitCode code) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("no error");
  return {};
}

// Knows one cluster only.
class OneScheduler final : public jobs::Schedulers {
 public:
  OneScheduler(const std::filesystem::path& project_dir, cluster::Scheduler& scheduler)
      : jobs::Schedulers(project_dir, user_name()), scheduler_(scheduler) {}
  cluster::Scheduler* find(const std::string& name) override {
    return name == scheduler_.cluster().name ? &scheduler_ : nullptr;
  }

 private:
  cluster::Scheduler& scheduler_;
};

class Project {
 public:
  Project() {
    ::setenv("TESSERA_STATE_DIR", (folder_ / "state").c_str(), 1);
    write_file_atomically(folder_ / "fake.yaml", "tessera_cluster: 1\nkind: slurm\n");
    scheduler.file().source = (folder_ / "fake.yaml").string();
    options.project = "p";
    options.workspace = folder_ / "runs";
    // What is not the cluster's own work is no matter of hundreds of milliseconds.
    options.max_failures = 1;
  }
  ~Project() { ::unsetenv("TESSERA_STATE_DIR"); }
  Project(const Project&) = delete;
  Project& operator=(const Project&) = delete;

  static sweep::Expansion plan_of(int points) { return tiny_plan(points, "fake"); }

  static std::string run_of(int point, int repeat = 1) { return tiny_run(point, "fake", repeat); }

  submit::SubmitReport submit(const sweep::Expansion& plan) {
    submit::SubmitEvents events;
    events.selected = [this](const std::vector<submit::Choice>& choices, int now_open) {
      selected.clear();
      for (const submit::Choice& choice : choices) {
        selected.push_back(choice.ref.run + " " + std::to_string(choice.ref.attempt) + " " +
                           std::to_string(static_cast<int>(choice.verdict)) + " " +
                           (choice.status ? std::string(to_text(*choice.status)) : ""));
      }
      open = now_open;
    };
    return submit_plan(plan, scheduler, options, events, interrupted);
  }
  submit::SubmitReport submit(int points) { return submit(plan_of(points)); }

  std::filesystem::path dir() const { return folder_ / "runs/p"; }
  std::filesystem::path ledger_file() const {
    return dir() / ".tessera/ledger" / (user_name() + "@" + host_name() + ".jsonl");
  }
  std::vector<ledger::Entry> entries(ledger::Op op) const {
    std::vector<ledger::Entry> found;
    for (const ledger::Entry& entry : ledger::read_ledger(dir()).entries) {
      if (entry.op == op) found.push_back(entry);
    }
    return found;
  }
  std::map<std::string, ledger::RunState> states() const {
    return ledger::run_states(ledger::read_ledger(dir()));
  }

  // The log of an attempt, with its footer unless it still runs.
  void write_log(const std::string& run, int attempt, std::optional<runlog::Status> status) const {
    auto log =
        runlog::Writer::to_folder(dir() / run, {.project = "p",
                                                .run = run,
                                                .id = run.substr(run.find("-s16-1g-") + 8, 12),
                                                .repeat = run.ends_with("-r2") ? 2 : 1,
                                                .attempt = attempt});
    log.write(runlog::Kind::header, {{"label", "tiny"}});
    if (!status) return;
    runlog::Footer footer = sample_footer();
    footer.status = *status;
    footer.ended_by = runlog::ended_by_of(*status);
    if (*status != runlog::Status::ok) footer.reason = "as the test says";
    log.end(footer);
  }

  // The job that holds the run's attempt ends so.
  void end(const std::string& run, int attempt, runlog::Status status) {
    for (auto& [id, known] : scheduler.jobs) {
      for (std::size_t i = 0; i < known.job.runs.size(); ++i) {
        const bool is_it = known.job.runs[i].run == run && known.job.runs[i].attempt == attempt;
        if (!is_it || (known.job.array && i != known.element)) continue;
        known.state.phase = Phase::ended;
        write_log(run, attempt, status);
      }
    }
  }

  FakeScheduler scheduler;
  submit::SubmitOptions options;
  std::vector<std::string> selected;  // of the last submit: "RUN ATTEMPT VERDICT STATUS"
  int open = 0;                       // likewise: runs on the cluster already
  std::atomic<bool> interrupted{false};

 private:
  TemporaryFolder folder_;
};

}  // namespace tessera::test
