// SPDX-License-Identifier: Apache-2.0
// A project on a cluster in memory that is submitted to, and what its ledger holds afterwards.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/submit/loop/submit.h"
#include "lib/base/file.h"
#include "lib/ledger/ledger.h"
#include "lib/ledger/state.h"
#include "lib/runlog/writer.h"
#include "tests/apps/submit/loop/fake_scheduler.h"
#include "tests/apps/submit/loop/tiny_plan.h"
#include "tests/lib/runlog/samples.h"
#include "tests/temporary.h"

namespace tessera::test {

class Place {
 public:
  Place() {
    ::setenv("TESSERA_STATE_DIR", (folder_ / "state").c_str(), 1);
    write_file_atomically(folder_ / "fake.yaml", "tessera_cluster: 1\nkind: slurm\n");
    scheduler.file().source = (folder_ / "fake.yaml").string();
    options.project = "p";
    options.workspace = folder_ / "runs";
  }
  ~Place() { ::unsetenv("TESSERA_STATE_DIR"); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  static sweep::Expansion plan_of(int points) { return tiny_plan(points, "fake"); }

  submit::SubmitReport submit(int points) {
    return submit::submit_plan(plan_of(points), scheduler, options, events, interrupted);
  }

  std::filesystem::path project() const { return folder_ / "runs/p"; }
  std::vector<ledger::Entry> entries(ledger::Op op) const {
    std::vector<ledger::Entry> found;
    for (const ledger::Entry& entry : ledger::read_ledger(project()).entries) {
      if (entry.op == op) found.push_back(entry);
    }
    return found;
  }
  std::map<std::string, ledger::RunState> states() const {
    return ledger::run_states(ledger::read_ledger(project()));
  }
  static std::string run_of(int point) { return tiny_run(point, "fake"); }

  // The log of an attempt that ended so.
  void write_log(const std::string& run, runlog::Status status, int attempt = 1) const {
    auto log = runlog::Writer::to_folder(
        project() / run,
        {.project = "p", .run = run, .id = run.substr(run.size() - 12), .attempt = attempt});
    log.write(runlog::Kind::header, {{"label", "tiny"}});
    runlog::Footer footer = sample_footer();
    footer.status = status;
    footer.ended_by = runlog::ended_by_of(status);
    if (status != runlog::Status::ok) footer.reason = "as the test says";
    log.end(footer);
  }

  // Every pending job ends at the next question, with a log that says so.
  void end_all(runlog::Status status) {
    scheduler.on_query = [this, status] {
      for (auto& [id, known] : scheduler.jobs) {
        if (known.state.phase != Phase::pending) continue;
        known.state.phase = Phase::ended;
        for (std::size_t i = 0; i < known.job.runs.size(); ++i) {
          if (known.job.array && i != known.element) continue;
          write_log(known.job.runs[i].run, status, known.job.runs[i].attempt);
        }
      }
    };
  }

  // All jobs that the ledger says are confirmed, and those that the cluster has: the same, each
  // once.
  void check_nothing_lost_or_doubled(int points) const {
    std::map<std::string, int> by_run;
    for (const auto& [id, known] : scheduler.jobs) {
      for (std::size_t i = 0; i < known.job.runs.size(); ++i) {
        if (!known.job.array || i == known.element) ++by_run[known.job.runs[i].run];
      }
    }
    CHECK(static_cast<int>(by_run.size()) == points);
    for (const auto& [run, count] : by_run) {
      CAPTURE(run);
      CHECK(count == 1);
    }
    int confirmed = 0;
    for (const auto& [run, state] : states()) {
      for (const auto& attempt : state.attempts) confirmed += attempt.confirmed ? 1 : 0;
    }
    CHECK(confirmed == points);
  }

  FakeScheduler scheduler;
  submit::SubmitOptions options;
  submit::SubmitEvents events;
  std::atomic<bool> interrupted{false};

 private:
  TemporaryFolder folder_;
};

}  // namespace tessera::test
