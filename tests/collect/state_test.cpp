// SPDX-License-Identifier: Apache-2.0
// What a run's files say about how it ended.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>

#include "collect/aggregate.h"
#include "collect/collection.h"
#include "lib/base/process.h"
#include "tests/collect/sample_run.h"
#include "tests/exhaustive.h"
#include "tests/temporary.h"

using namespace tessera;
using runlog::EndedBy;
using runlog::Status;

namespace {

collect::Request request_for(const std::filesystem::path& workspace) {
  collect::Request request;
  request.projects = {{.workspace = workspace, .name = "tput"}};
  request.catalogues.built_in = hardware::built_in_catalogue();
  return request;
}

std::vector<collect::Row> rows_of(const std::filesystem::path& workspace) {
  return collect::collect_rows(request_for(workspace)).rows;
}

collect::Row only_row(const std::filesystem::path& workspace) {
  auto rows = rows_of(workspace);
  REQUIRE(rows.size() == 1);
  return rows[0];
}

std::string without_footer(test::SampleRun run) {
  run.footer = false;
  return test::sample_log(run);
}

void write_process(const std::filesystem::path& folder, const ProcessRef& process) {
  write_file_atomically(folder / "run.1.pid", process_json(process, "kim"));
}

// A process that has ended.
ProcessRef dead_process() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ProcessRef process = this_process();
  process.pid = child;
  process.start_ticks = start_ticks(child).value();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return process;
}

// The ledger of a run that was about to be handed over, and what came then.
void submitted(const std::filesystem::path& workspace, const test::SampleRun& run,
               ledger::Entry then) {
  ledger::Ledger ledger(workspace / "tput", "kim", host_name());
  ledger::Entry intent;
  intent.op = ledger::Op::intent;
  intent.runs = {{.run = test::name_of(run), .id = test::id_of(run)}};
  ledger.append(intent);
  then.runs = intent.runs;
  ledger.append(std::move(then));
}

}  // namespace

TEST_CASE("a log cut at any byte gives the right row or says that it is incomplete") {
  test::SampleRun run = test::sample_7b();
  run.measured = 3;
  const std::string text = test::sample_log(run);
  const test::TemporaryFolder folder;
  const auto run_folder = test::write_sample(folder.path(), run, text);
  const collect::Row whole = only_row(folder.path());
  REQUIRE(whole.status == Status::ok);
  // Every byte about the ends of lines, and some of what is between.
  const auto step = [&](std::size_t cut) {
    constexpr std::size_t kNear = 4;
    const std::size_t begin = cut < kNear ? 0 : cut - kNear;
    const bool is_near = text.substr(begin, 2 * kNear + 10).find('\n') != std::string::npos;
    return is_near || test::is_exhaustive() ? 1 : 10;
  };
  for (std::size_t cut = 0; cut < text.size() - 1; cut += step(cut)) {
    CAPTURE(cut);
    write_file_atomically(run_folder / "log.1.0.0.jsonl", text.substr(0, cut));
    const collect::Row row = only_row(folder.path());
    REQUIRE(row.status != Status::ok);
    REQUIRE((row.status == Status::partial || row.status == Status::unknown));
    REQUIRE_FALSE(row.reason.empty());
    REQUIRE(row.id == whole.id);
    REQUIRE(row.mfu_pct.has_value() == (row.status == Status::partial));
    // Equal steps: what is left of them has the right speed.
    if (row.mfu_pct) REQUIRE(*row.mfu_pct == doctest::Approx(*whole.mfu_pct));
  }
  write_file_atomically(run_folder / "log.1.0.0.jsonl", text.substr(0, text.size() - 1));
  CHECK(only_row(folder.path()).status == Status::ok);
}

TEST_CASE("flipped bits never change a figure") {
  const test::SampleRun run = test::sample_7b();
  const std::string text = test::sample_log(run);
  const test::TemporaryFolder folder;
  const auto run_folder = test::write_sample(folder.path(), run, text);
  const collect::Row whole = only_row(folder.path());
  std::mt19937 random(29);
  for (int i = 0; i < 500; ++i) {
    std::string flipped = text;
    for (int flips = 0; flips < 1 + i % 4; ++flips) {
      char& byte = flipped[random() % flipped.size()];
      byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << random() % 8));
    }
    write_file_atomically(run_folder / "log.1.0.0.jsonl", flipped);
    const collect::Row row = only_row(folder.path());
    if (row.mfu_pct) REQUIRE(*row.mfu_pct == doctest::Approx(*whole.mfu_pct));
    REQUIRE((row.status == Status::ok || !row.reason.empty()));
  }
}

TEST_CASE("foreign and binary files are named and left out, never a row's figure") {
  const test::TemporaryFolder folder;
  const auto run_folder = test::write_sample(folder.path(), test::sample_7b(),
                                             std::string("\x7f"
                                                         "ELF\0\0\1\n\xff\xfe",
                                                         10));
  const auto collection = collect::collect_rows(request_for(folder.path()));
  REQUIRE(collection.rows.size() == 1);
  CHECK(collection.rows[0].status == Status::unknown);
  CHECK(collection.rows[0].reason == "the log holds no record");
  REQUIRE(collection.notes.lines().size() == 1);
  CHECK(collection.notes.lines()[0] ==
        (run_folder / "log.1.0.0.jsonl").string() + ": no record of a run log in it; left out");
}

TEST_CASE("a log whose point does not have the id that it claims is named and left out") {
  test::SampleRun run = test::sample_7b();
  const test::TemporaryFolder folder;
  test::write_sample(folder.path(), run);
  // The same run's folder and records, around another point.
  test::SampleRun other = run;
  other.point.microbatch_size = 3;
  test::LogText log(test::origin_of(run));
  log.add(runlog::Kind::header,
          {{"label", "7b"}, {"point", runlog::Json::parse(sweep::point_json(other.point))}});
  other.attempt = 2;
  test::write_sample(folder.path(), run);
  write_file_atomically(folder / "tput" / test::name_of(run) / "log.2.0.0.jsonl", [&] {
    runlog::Origin origin = test::origin_of(run);
    origin.attempt = 2;
    test::LogText second(origin);
    second.add(runlog::Kind::header,
               {{"label", "7b"}, {"point", runlog::Json::parse(sweep::point_json(other.point))}});
    return second.text();
  }());
  const auto collection = collect::collect_rows(request_for(folder.path()));
  REQUIRE(collection.rows.size() == 1);
  CHECK(collection.rows[0].attempts == 1);
  REQUIRE(collection.notes.lines().size() == 1);
  CHECK(collection.notes.lines()[0].find("log.2.0.0.jsonl: the header's point has the id") !=
        std::string::npos);
}

TEST_CASE("a run whose threads waited for a CPU more than a tenth of the time is marked busy") {
  for (const auto& [share, busy] : {std::pair{0.8999, true}, {0.9, false}, {1.0, false}}) {
    const test::TemporaryFolder folder;
    test::SampleRun run = test::sample_7b();
    run.cpu_share = share;
    test::write_sample(folder.path(), run);
    const collect::Row row = only_row(folder.path());
    CHECK(row.marks == (busy ? std::vector{collect::Mark::busy} : std::vector<collect::Mark>{}));
    CHECK(row.cpu_share_pct == doctest::Approx(100 * share));
  }
}

TEST_CASE("a run beside other processes on its GPU is marked shared") {
  for (const std::optional<std::int64_t> others : {std::optional<std::int64_t>{}, {0}, {1}}) {
    const test::TemporaryFolder folder;
    test::SampleRun run = test::sample_7b();
    run.other_processes = others;
    test::write_sample(folder.path(), run);
    CAPTURE(others.value_or(-1));
    CHECK(only_row(folder.path()).marks ==
          (others == 1 ? std::vector{collect::Mark::shared} : std::vector<collect::Mark>{}));
  }
}

TEST_CASE(
    "a run whose peak was measured beside other work is marked shared, whatever its source says") {
  for (const bool disturbed : {true, false}) {
    const test::TemporaryFolder folder;
    test::SampleRun run = test::sample_7b();
    run.peak_source = "measured: f32 GEMM, 2 threads, with 60 % of their CPU time";
    if (disturbed) run.peak_disturbed = "other-work";
    test::write_sample(folder.path(), run);
    CHECK(only_row(folder.path()).marks ==
          (disturbed ? std::vector{collect::Mark::shared} : std::vector<collect::Mark>{}));
    // A log without a footer says so as well.
    test::write_sample(folder.path(), run, without_footer(run));
    CHECK(std::ranges::count(only_row(folder.path()).marks, collect::Mark::shared) ==
          (disturbed ? 1 : 0));
  }
}

TEST_CASE("a living process is running, a dead one is partial, failed or start-fail") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  const auto run_folder = test::write_sample(folder.path(), run, without_footer(run));
  write_process(run_folder, this_process());
  CHECK(only_row(folder.path()).status == Status::running);
  CHECK_FALSE(only_row(folder.path()).mfu_pct.has_value());

  const ProcessRef dead = dead_process();
  write_process(run_folder, dead);
  collect::Row row = only_row(folder.path());
  CHECK(row.status == Status::partial);
  CHECK(row.reason ==
        fmt::format("the log ends after 12 steps: process {} on {} is gone; log: no footer",
                    dead.pid, dead.host));
  CHECK(row.marks == std::vector{collect::Mark::partial});

  run.measured = 0;
  run.warmup = 1;
  test::write_sample(folder.path(), run, without_footer(run));
  CHECK(only_row(folder.path()).status == Status::failed);

  std::filesystem::remove(run_folder / "log.1.0.0.jsonl");
  row = only_row(folder.path());
  CHECK(row.status == Status::start_fail);
  CHECK(row.reason.find("wrote no record") != std::string::npos);
}

TEST_CASE("a process of another host cannot be asked: what the log shows is told") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  run.measured = 0;
  ProcessRef elsewhere = this_process();
  elsewhere.host = "another-host";
  const auto run_folder = test::write_sample(folder.path(), run, without_footer(run));
  write_process(run_folder, elsewhere);
  const collect::Row row = only_row(folder.path());
  CHECK(row.status == Status::unknown);
  CHECK(row.reason.find("on another-host cannot be asked from here") != std::string::npos);
}

TEST_CASE("every status of a footer is the row's, with its reason") {
  const test::TemporaryFolder folder;
  for (const Status status : {Status::oom, Status::host_oom, Status::timeout, Status::nan,
                              Status::comm_error, Status::start_fail, Status::failed}) {
    test::SampleRun run = test::sample_7b();
    run.status = status;
    run.reason = "because";
    test::write_sample(folder.path(), run);
    const collect::Row row = only_row(folder.path());
    CHECK(row.status == status);
    CHECK(row.reason == "because");
    CHECK_FALSE(row.tokens_per_s.has_value());
    CHECK_FALSE(row.mfu_pct.has_value());
  }
}

TEST_CASE("a cancelled run says so: partial with figures, else cancelled") {
  for (const bool with_steps : {true, false}) {
    CAPTURE(with_steps);
    const test::TemporaryFolder workspace;
    test::SampleRun run = test::sample_7b();
    run.status = with_steps ? Status::partial : Status::failed;
    run.ended_by = EndedBy::interrupted;
    run.reason = "interrupted";
    test::write_sample(workspace.path(), run);
    CHECK(only_row(workspace.path()).reason == "interrupted");
    submitted(workspace.path(), run, {.op = ledger::Op::cancel});
    const collect::Row row = only_row(workspace.path());
    CHECK(row.status == (with_steps ? Status::partial : Status::cancelled));
    CHECK(row.reason == (with_steps ? "cancelled by its user" : "by its user"));
    CHECK(row.footer.ended_by == EndedBy::cancelled);
    CHECK(row.tokens_per_s.has_value() == with_steps);
  }
}

// A run that was told to end says no more than that; the ledger has what the cluster said.
TEST_CASE("a run that was ended from outside says by what, as status does") {
  struct Case {
    Status footer;
    Status said;  // by the ledger
    const char* reason;
    Status status;
  };
  for (const Case& each :
       {Case{Status::failed, Status::cancelled, "by its user", Status::cancelled},
        {Status::failed, Status::preempted, "PREEMPTED", Status::preempted},
        {Status::partial, Status::partial, "cancelled by its user", Status::partial}}) {
    CAPTURE(each.reason);
    const test::TemporaryFolder workspace;
    test::SampleRun run = test::sample_7b();
    run.status = each.footer;
    run.ended_by = EndedBy::interrupted;
    run.reason = "any words";
    const ledger::Entry said{.op = ledger::Op::final,
                             .status = each.said,
                             .ended_by = EndedBy::preempted,
                             .reason = each.reason};
    test::write_sample(workspace.path(), run);
    submitted(workspace.path(), run, said);
    const collect::Row row = only_row(workspace.path());
    CHECK(row.status == each.status);
    CHECK(row.reason == each.reason);
    CHECK(row.footer.ended_by == EndedBy::preempted);
    CHECK(row.tokens_per_s.has_value() == (each.footer == Status::partial));
  }
}

TEST_CASE("a log that is gone is missing in the table too") {
  const test::TemporaryFolder workspace;
  const test::SampleRun run = test::sample_7b();
  std::filesystem::create_directories(workspace / "tput" / test::name_of(run));
  submitted(workspace.path(), run, {.op = ledger::Op::final, .status = Status::ok});
  collect::Row row = only_row(workspace.path());
  CHECK(row.status == Status::missing);
  CHECK(row.reason == "it ended ok, but its log is gone or damaged");
  submitted(workspace.path(), run, {.op = ledger::Op::final, .status = Status::partial});
  row = only_row(workspace.path());
  CHECK(row.status == Status::missing);
  CHECK(row.reason == "it ended partial, but its log is gone or damaged");
}

TEST_CASE("steps that were measured before a failure are no result") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  test::LogText log = test::sample_log_start(run);
  runlog::Footer footer;
  footer.status = Status::nan;
  footer.reason = "the loss of step 9 is not finite";
  footer.steps = {.warmup = 2,
                  .measured = 6,
                  .measured_s = 6,
                  .tokens = 600000,
                  .median_s = 1.0,
                  .loss_first = 10.5};
  footer.step_s_max_over_ranks = 1.0;
  log.end(footer);
  test::write_sample(folder.path(), run, log.text());
  const collect::Row row = only_row(folder.path());
  CHECK(row.status == Status::nan);
  CHECK_FALSE(row.tokens_per_s.has_value());
  CHECK_FALSE(row.footer.steps.median_s.has_value());
  CHECK_FALSE(row.footer.step_s_max_over_ranks.has_value());
  CHECK(row.footer.steps.measured == 0);
  CHECK(row.footer.steps.loss_first == 10.5);
}

TEST_CASE("a footer that says ok without a measured step is not believed") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  run.measured = 0;
  test::write_sample(folder.path(), run);
  CHECK(only_row(folder.path()).status == Status::unknown);
}

TEST_CASE("the newest complete attempt counts, and a later failed one does not hide it") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  run.step_s = 2.0;
  test::write_sample(folder.path(), run);
  run.attempt = 2;
  run.step_s = 1.0;
  test::write_sample(folder.path(), run);
  run.attempt = 3;
  run.status = Status::oom;
  run.commit = "other";
  test::write_sample(folder.path(), run);
  collect::Row row = only_row(folder.path());
  CHECK(row.status == Status::ok);
  CHECK(row.attempt == 2);
  CHECK(row.attempts == 3);
  CHECK(*row.tokens_per_s == doctest::Approx(48 * 2048.0));
  CHECK(row.marks == std::vector{collect::Mark::stale});

  // A partial one is better than none, an ok one better than a newer partial one.
  run.attempt = 4;
  run.status = Status::partial;
  run.reason = "interrupted";
  test::write_sample(folder.path(), run);
  CHECK(only_row(folder.path()).attempt == 2);
  const auto run_folder = folder / "tput" / test::name_of(run);
  std::filesystem::remove(run_folder / "log.1.0.0.jsonl");
  std::filesystem::remove(run_folder / "log.2.0.0.jsonl");
  row = only_row(folder.path());
  CHECK(row.attempt == 4);
  CHECK(row.status == Status::partial);
}

TEST_CASE("restarts of an attempt are told apart") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  test::write_sample(folder.path(), run, without_footer(run));
  run.restart = 1;
  test::write_sample(folder.path(), run);
  const collect::Row row = only_row(folder.path());
  CHECK(row.status == Status::ok);
  CHECK(row.attempts == 2);
  CHECK(row.log.ends_with("log.1.1.0.jsonl"));
}

TEST_CASE("repeats are medianed whole, and only measured ones") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  run.repeats = 5;
  for (const double step_s : {1.0, 4.0, 2.0, 8.0}) {
    run.step_s = step_s;
    test::write_sample(folder.path(), run);
    ++run.repeat;
  }
  run.status = Status::oom;
  test::write_sample(folder.path(), run);
  const collect::Row row = only_row(folder.path());
  CHECK(row.footer.steps.median_s == 4.0);  // the lower one of four speeds
  CHECK(row.run.ends_with("-r2"));
  CHECK(row.repeats_ok == 4);
  CHECK(row.repeats_asked == 5);
  CHECK(row.attempts == 5);
  CHECK(*row.repeat_spread_pct == doctest::Approx(100 * (1.0 - 1.0 / 8) * 4));
  CHECK(row.reason == "repeat 5: oom");
}

TEST_CASE("a run on another GPU than it was made for is divided by the peak of the one it ran on") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  run.gpu.reset();
  run.point.gpu = "h200";
  run.device = "NVIDIA A100-SXM4-80GB";
  test::write_sample(folder.path(), run);
  const collect::Row row = only_row(folder.path());
  CHECK(row.gpu == "a100_80gb");
  CHECK(row.peak_tflops == 312);
  CHECK(row.peak_source.find("A100") != std::string::npos);
}

TEST_CASE("two devices are never averaged, nor two counts of one device") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  test::write_sample(folder.path(), run);
  run.repeat = 2;
  run.device = "NVIDIA H200";
  run.gpu = "h200";
  test::write_sample(folder.path(), run);
  run.repeat = 3;
  run.device_count = 4;
  test::write_sample(folder.path(), run);
  const auto rows = rows_of(folder.path());
  REQUIRE(rows.size() == 3);
  for (const auto& row : rows) CHECK(row.repeats_ok == 1);
}

TEST_CASE("a run that found no device joins the row of its point") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  run.repeats = 2;
  test::write_sample(folder.path(), run);
  run.repeat = 2;
  run.device = "";
  run.status = Status::start_fail;
  run.reason = "busy";
  test::write_sample(folder.path(), run);
  const collect::Row row = only_row(folder.path());
  CHECK(row.status == Status::ok);
  CHECK(row.repeats_ok == 1);
  CHECK(row.reason == "repeat 2: start-fail");
}

TEST_CASE(
    "points that differ only in microbatch, sharding or checkpointing are rows of their own") {
  const test::TemporaryFolder folder;
  test::SampleRun run = test::sample_7b();
  test::write_sample(folder.path(), run);
  run.point.microbatch_size = 3;
  test::write_sample(folder.path(), run);
  run.point.sharding_strategy = Sharding::shard_grad_op;
  test::write_sample(folder.path(), run);
  run.point.activation_checkpointing = Checkpointing::full;
  test::write_sample(folder.path(), run);
  CHECK(rows_of(folder.path()).size() == 4);
}
