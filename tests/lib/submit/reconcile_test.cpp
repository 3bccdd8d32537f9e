#include "lib/submit/reconcile.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>

#include "lib/base/file.h"
#include "lib/runlog/writer.h"
#include "tests/lib/runlog/samples.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::submit;
using ledger::Op;
using runlog::Status;

namespace {

const std::string kRun = "p--a-0123456789ab";

std::map<std::string, ledger::RunState> open_attempt(const std::string& host) {
  ledger::AttemptState attempt;
  attempt.last = Op::accepted;
  attempt.host = host;
  attempt.user = "kim";
  attempt.cluster = "local";
  return {{kRun, {.ref = {.run = kRun, .id = "0123456789ab"}, .attempts = {attempt}}}};
}

runlog::Writer log_in(const std::filesystem::path& run_dir) {
  make_directories(run_dir);
  return runlog::Writer::to_folder(run_dir, {.project = "p", .run = kRun, .id = "0123456789ab"});
}

runlog::Json step_of(int step, bool warmup) {
  return {{"step", step}, {"warmup", warmup}, {"seconds", 0.5},
          {"tokens", 64}, {"loss", 9.5},      {"grad_norm", 1.5}};
}

}  // namespace

TEST_CASE("an intent whose process never began is missing, so it may be run again") {
  const test::TemporaryFolder folder;
  const Reconciled result = reconcile_local(folder.path(), open_attempt(host_name()));
  REQUIRE(result.finals.size() == 1);
  CHECK(result.finals[0].status == Status::missing);
  CHECK(result.finals[0].runs[0].run == kRun);
}

TEST_CASE("a process that is gone has its status from its log") {
  const test::TemporaryFolder folder;
  {
    auto log = log_in(folder / kRun);
    log.write(runlog::Kind::header, {{"label", "a"}});
    CHECK(reconcile_local(folder.path(), open_attempt(host_name())).finals.at(0).status ==
          Status::failed);
    log.write(runlog::Kind::step, step_of(1, true));
    log.write(runlog::Kind::step, step_of(2, false));
    const auto cut = reconcile_local(folder.path(), open_attempt(host_name())).finals.at(0);
    CHECK(cut.status == Status::partial);
    CHECK(cut.reason == "ended without a footer");
    runlog::Footer footer = test::sample_footer();
    footer.status = Status::nan;
    footer.reason = "loss at step 3";
    log.write(runlog::Kind::footer, footer_json(footer, log.facts()));
  }
  const auto ended = reconcile_local(folder.path(), open_attempt(host_name())).finals.at(0);
  CHECK(ended.status == Status::nan);
  CHECK(ended.reason == "loss at step 3");
}

TEST_CASE("a living process is adopted, by pid and start time") {
  const test::TemporaryFolder folder;
  write_file_atomically(folder / "trainer", "#!/bin/sh\nexec sleep 30\n");
  ::chmod((folder / "trainer").c_str(), 0755);
  const ProcessRef process = cluster::start_local({.trainer = folder / "trainer",
                                                   .run_dir = folder / kRun,
                                                   .attempt = 1,
                                                   .spec_json = "{}",
                                                   .user = "kim"},
                                                  [](const ProcessRef&) {});
  const Reconciled alive = reconcile_local(folder.path(), open_attempt(host_name()));
  REQUIRE(alive.living.size() == 1);
  CHECK(alive.living[0].process == process);
  CHECK(alive.finals.empty());
  CHECK(cluster::signal_local(process, SIGKILL));
  ::waitpid(process.pid, nullptr, 0);
  CHECK(reconcile_local(folder.path(), open_attempt(host_name())).finals.size() == 1);
}

TEST_CASE("of another host nothing is claimed") {
  const test::TemporaryFolder folder;
  const Reconciled result = reconcile_local(folder.path(), open_attempt("another-host"));
  CHECK(result.finals.empty());
  CHECK(result.living.empty());
  CHECK(result.elsewhere == std::vector<std::string>{kRun});
}
