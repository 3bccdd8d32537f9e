// SPDX-License-Identifier: Apache-2.0
// logs, rerun, rebuild and --detach with the real programs.
#include <fmt/format.h>
#include <pty.h>

#include <algorithm>
#include <fstream>

#include "lib/base/process.h"
#include "lib/ledger/lock.h"
#include "tests/apps/end_to_end/end_to_end.h"

using namespace tessera;
using test::EndToEnd;
using test::kSubmit;
using test::living;
using test::training;
using test::wait_until;

namespace {

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string id_of(const std::string& run) {
  const std::size_t at = run.find("-s16-1g-") + 8;
  return run.substr(at, 12);
}

std::filesystem::path output_of(const EndToEnd& e2e, const std::string& run, int attempt) {
  return e2e.project() / run / fmt::format("out.{}.0.0", attempt);
}

std::vector<ledger::Entry> plans(const EndToEnd& e2e) {
  std::vector<ledger::Entry> found;
  for (const ledger::Entry& entry : ledger::read_ledger(e2e.project()).entries) {
    if (entry.op == ledger::Op::plan) found.push_back(entry);
  }
  return found;
}

std::optional<ProcessRef> worker(const EndToEnd& e2e) {
  const auto holder = ledger::lock_holder(e2e.project());
  return holder ? std::optional(holder->process) : std::nullopt;
}

// The process that a detached submission named. It prints its last lines after it lets go of the
// project, so tests of what it printed wait for its end.
pid_t background_process(const CommandResult& begun) {
  const std::string word = "background: process ";
  const std::size_t at = begun.out.find(word);
  REQUIRE(at != std::string::npos);
  return static_cast<pid_t>(std::stol(begun.out.substr(at + word.size())));
}

// What the submission in the background printed: there is one.
std::string background_output(const EndToEnd& e2e) {
  std::string text;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(e2e.project() / ".tessera")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("submit.") || !name.ends_with(".log")) continue;
    ++files;
    text = read_file(entry.path());
  }
  CHECK(files == 1);
  return text;
}

constexpr int code(ExitCode exit_code) {
  return static_cast<int>(exit_code);
}

}  // namespace

TEST_CASE("logs prints what a run printed, rerun runs it once more") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2]", 12);
  CHECK(e2e.run("submit", {"logs", "e2e"}).exit_code == code(ExitCode::empty));
  REQUIRE(e2e.run("submit", kSubmit).exit_code == 0);
  std::vector<std::string> runs;
  for (const auto& [run, state] : e2e.states()) runs.push_back(run);
  REQUIRE(runs.size() == 2);
  for (const std::string& run : runs) {
    const CommandResult logs = e2e.run("submit", {"logs", "e2e", id_of(run)});
    CAPTURE(logs.err);
    CHECK(logs.exit_code == 0);
    CHECK(logs.out == read_file(output_of(e2e, run, 1)));
    CHECK_FALSE(logs.out.empty());
    CHECK(logs.err == fmt::format("submit: its records and result: collect show {}\n", run));
    CHECK(e2e.run("submit", {"logs", run}).out == logs.out);
  }
  const CommandResult newest = e2e.run("submit", {"logs"});
  CHECK(newest.err.find("attempt 1: the newest that has output\n") != std::string::npos);
  CHECK(e2e.run("submit", {"logs", "e2e", "tiny"}).exit_code == code(ExitCode::usage));
  CHECK(e2e.run("submit", {"logs", "e2e", "nope"}).exit_code == code(ExitCode::empty));
  CHECK(e2e.run("submit", {"logs", "e2e", runs[0], "--attempt", "2"}).exit_code ==
        code(ExitCode::empty));
  CHECK(e2e.run("submit", {"logs", "e2e", "--RUN"}).exit_code == code(ExitCode::usage));
  CHECK(e2e.run("submit", {"status", "--follow"}).exit_code == code(ExitCode::usage));

  const auto before = plans(e2e);
  const CommandResult again = e2e.run("submit", {"rerun", "e2e", id_of(runs[1]), "--profile"});
  CAPTURE(again.out);
  CAPTURE(again.err);
  CHECK(again.exit_code == 0);
  CHECK(again.out.find("e2e: 1 run, 1 to start\n") != std::string::npos);
  CHECK(plans(e2e) == before);
  CHECK(e2e.states().at(runs[0]).attempts.size() == 1);
  const auto attempts = e2e.states().at(runs[1]).attempts;
  REQUIRE(attempts.size() == 2);
  CHECK(attempts[1].status == runlog::Status::ok);
  CHECK(read_file(e2e.project() / runs[1] / "run.2.json").find("\"profile\":true") !=
        std::string::npos);
  CHECK(e2e.run("submit", {"logs", runs[1]}).out == read_file(output_of(e2e, runs[1], 2)));
  CHECK(e2e.run("submit", {"logs", runs[1], "--attempt", "1"}).out ==
        read_file(output_of(e2e, runs[1], 1)));
  CHECK(e2e.run("submit", kSubmit).out.find("0 to start, 2 done before") != std::string::npos);
  CHECK(e2e.run("submit", {"rerun", "e2e"}).exit_code == code(ExitCode::usage));
  CHECK(e2e.run("submit", {"rerun", "e2e", runs[0], "--only", "all"}).exit_code ==
        code(ExitCode::usage));
}

TEST_CASE("what runs is followed to its end, and is not run again meanwhile") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 20000);
  const pid_t submit = e2e.start("submit", kSubmit);
  REQUIRE(wait_until([&] { return training(e2e); }));
  ::kill(submit, SIGKILL);
  EndToEnd::exit_code(submit);
  const std::string run = e2e.states().begin()->first;
  REQUIRE_FALSE(living(e2e).empty());
  const CommandResult again = e2e.run("submit", {"rerun", "e2e", run});
  CHECK(again.exit_code == code(ExitCode::refused));
  CHECK(again.err ==
        fmt::format("submit: {}: an attempt of it has not ended; end it with submit cancel first\n",
                    run));
  const CommandResult logs = e2e.run("submit", {"logs", "-f"});
  CHECK(logs.exit_code == 0);
  CHECK(logs.err.starts_with(fmt::format("submit: {} attempt 1: the only one that runs\n", run)));
  CHECK(living(e2e).empty());
  CHECK(logs.out == read_file(output_of(e2e, run, 1)));
  CHECK(e2e.states().at(run).attempts.size() == 1);
}

TEST_CASE("after a rebuild submit selects and collect shows what they did before") {
  const EndToEnd e2e;
  // The third fails with a footer: a token is beyond the vocabulary. The fourth is dropped.
  e2e.write_sweep("sweep.yaml", "[1, 2, 3, 4]", 12,
                  "overrides: [{when: global_batch == 3, set: {data: ./bad.u16}}]\n"
                  "exclude: [{when: global_batch == 4, reason: odd}]\nrepeats: 2\n");
  write_file_atomically(e2e.folder() / "bad.u16", std::string(2000, '\xff'));
  REQUIRE(e2e.run("submit", kSubmit).exit_code == code(ExitCode::runs_failed));
  const std::string first = e2e.states().begin()->first;
  e2e.run("submit", {"rerun", "e2e", first});
  REQUIRE(e2e.states().at(first).attempts.size() == 2);
  const auto collect = [&] {
    const CommandResult collected = e2e.run("collect", {"e2e"});
    CAPTURE(collected.err);
    CHECK(collected.exit_code == 0);
    return e2e.results();
  };
  const CommandResult submit_before = e2e.run("submit", kSubmit);
  const auto results_before = collect();
  CHECK(results_before.size() == 5);
  const auto states_before = e2e.states();
  const auto selection = [](const CommandResult& submit) {
    return submit.out.substr(0, submit.out.find('\n'));
  };
  CHECK(selection(submit_before).find("0 to start, 4 done before, 2 not ok before") !=
        std::string::npos);
  const auto folder = e2e.project() / ".tessera/ledger";
  const auto file = folder / (user_name() + "@" + host_name() + ".jsonl");

  const auto check = [&](const CommandResult& rebuilt) {
    CAPTURE(rebuilt.err);
    CAPTURE(rebuilt.out);
    CHECK(rebuilt.exit_code == 0);
    CHECK(rebuilt.err.empty());
    CHECK(rebuilt.out.find("ledger made anew: 3 points, 6 runs, 7 attempts\n") !=
          std::string::npos);
    const CommandResult submit_after = e2e.run("submit", kSubmit);
    CHECK(submit_after.exit_code == code(ExitCode::runs_failed));
    CHECK(selection(submit_after) == selection(submit_before));
    CHECK(collect() == results_before);
    const auto states = e2e.states();
    for (const auto& [run, state] : states_before) {
      const auto& attempts = states.at(run).attempts;
      REQUIRE(attempts.size() == state.attempts.size());
      for (std::size_t i = 0; i < attempts.size(); ++i) {
        CHECK(attempts[i].status == state.attempts[i].status);
        CHECK(attempts[i].reason == state.attempts[i].reason);
        CHECK(attempts[i].build == state.attempts[i].build);
        CHECK(attempts[i].job == state.attempts[i].job);
      }
    }
  };
  std::filesystem::remove_all(folder);
  check(e2e.run("submit", {"rebuild"}));

  std::string text = read_file(file);
  text[text.find("\"op\"") + 1] = 'x';
  std::ofstream(file, std::ios::binary) << text;
  const CommandResult damaged = e2e.run("submit", kSubmit);
  CHECK(damaged.exit_code == code(ExitCode::conflict));
  CHECK(damaged.err.find("submit rebuild") != std::string::npos);
  check(e2e.run("submit", {"--rebuild", "--project", "e2e"}));
  CHECK(e2e.run("submit", {"--rebuild", "--RUN"}).exit_code == code(ExitCode::usage));
  CHECK(e2e.run("submit", {"--rebuild", "--project", "none"}).exit_code == code(ExitCode::empty));
}

TEST_CASE("a run that failed to start stays failed in a rebuilt ledger, if it said so") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 12);
  write_file_atomically(e2e.folder() / "cluster.yaml",
                        "tessera_cluster: 1\nkind: local\ngpus: {cpu: {per_node: 1}}\n"
                        "trainer: {path: failing}\n");
  write_file_atomically(e2e.folder() / "failing", "#!/bin/sh\necho no device >&2\nexit 17\n");
  std::filesystem::permissions(e2e.folder() / "failing", std::filesystem::perms::owner_all);
  const auto failing = with(kSubmit, {"-c", "cluster.yaml"});
  CHECK(e2e.run("submit", failing).exit_code == code(ExitCode::runs_failed));
  const CommandResult logs = e2e.run("submit", {"logs"});
  CHECK(logs.out == "no device\n");
  std::filesystem::remove_all(e2e.project() / ".tessera/ledger");
  CHECK(e2e.run("submit", {"rebuild", "e2e"}).exit_code == 0);
  CHECK(e2e.run("submit", failing).out.find("0 to start, 1 not ok before (1 start-fail)\n") !=
        std::string::npos);
}

TEST_CASE("a detached submission goes on by itself and leaves its output") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2]", 12);
  const auto detached = with(kSubmit, {"--detach"});
  const CommandResult begun = e2e.run("submit", detached);
  CAPTURE(begun.err);
  CHECK(begun.exit_code == 0);
  CHECK(begun.out.starts_with("e2e: 2 runs, 2 to start\nIt goes on in the background: process "));
  CHECK(begun.out.find("To end it: submit cancel e2e\n") != std::string::npos);
  CHECK(begun.out.find("2 ok") == std::string::npos);
  // Followed from before its first run begins.
  const CommandResult followed = e2e.run("submit", {"logs", "-f"});
  CAPTURE(followed.err);
  CHECK(followed.exit_code == 0);
  CHECK_FALSE(followed.out.empty());
  REQUIRE(wait_until([&] { return !start_ticks(background_process(begun)); }));
  const std::string output = background_output(e2e);
  CHECK(output.find("2 ok, 0 not ok in ") != std::string::npos);
  CHECK(e2e.logs().size() == 2);
  // With nothing to do there is nothing to wait for, and all is as without it.
  const CommandResult again = e2e.run("submit", detached);
  CHECK(again.exit_code == 0);
  CHECK(again.out.find("2 done before in ") != std::string::npos);
  CHECK(background_output(e2e) == output);
  CHECK(e2e.run("submit", {"--sweep", "sweep.yaml", "--detach"}).exit_code ==
        code(ExitCode::usage));
}

TEST_CASE("what fails before a submission is in the background is said by its caller") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 1000000);
  const auto detached = with(kSubmit, {"--detach"});
  CHECK(e2e.run("submit", detached).exit_code == 0);
  REQUIRE(wait_until([&] { return training(e2e); }));
  const auto at_work = worker(e2e);
  REQUIRE(at_work.has_value());
  const CommandResult second = e2e.run("submit", detached);
  CHECK(second.exit_code == code(ExitCode::locked));
  CHECK(second.out.empty());
  CHECK(second.err.find(fmt::format("pid {}", at_work->pid)) != std::string::npos);
  const CommandResult cancel = e2e.run("submit", {"cancel"});
  CHECK(cancel.out.find(fmt::format("the submit at work, pid {}\n", at_work->pid)) !=
        std::string::npos);
  REQUIRE(wait_until([&] { return liveness(*at_work) != Liveness::alive; }));
  CHECK(living(e2e).empty());
  CHECK(background_output(e2e).find("submit: interrupted") != std::string::npos);
}

TEST_CASE("neither the death of its caller nor the end of its terminal ends a submission") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 1000000);
  const auto detached = with(kSubmit, {"--detach"});
  SUBCASE("its caller is killed") {
    const pid_t caller = e2e.start("submit", detached);
    REQUIRE(wait_until([&] { return worker(e2e).has_value(); }));
    ::kill(caller, SIGKILL);
    EndToEnd::exit_code(caller);
  }
  SUBCASE("its terminal is closed") {
    int terminal = -1;
    const pid_t shell = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    REQUIRE(shell >= 0);
    if (shell == 0) {
      // A shell that stays, as a login does.
      std::vector<std::string> words = e2e.command("submit", detached);
      std::vector<std::string> all =
          with({"/bin/sh", "-c", "\"$@\"; echo let go; exec sleep 60", "sh"}, words);
      std::vector<char*> pointers;
      for (std::string& word : all) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    std::string seen;
    char block[256];
    // The caller has ended, too: the leak sanitizer never ends where a terminal's end wakes what it
    // has stopped.
    while (seen.find("let go") == std::string::npos) {
      const ssize_t got = ::read(terminal, block, sizeof block);
      REQUIRE(got > 0);
      seen.append(block, static_cast<std::size_t>(got));
    }
    ::close(terminal);
    CHECK(EndToEnd::exit_code(shell) == 128 + SIGHUP);
  }
  REQUIRE(wait_until([&] { return training(e2e); }));
  const auto at_work = worker(e2e);
  REQUIRE(at_work.has_value());
  CHECK(liveness(*at_work) == Liveness::alive);
  CHECK(::getsid(at_work->pid) == at_work->pid);
  CHECK(e2e.run("submit", {"cancel"}).exit_code == 0);
  REQUIRE(wait_until([&] { return liveness(*at_work) != Liveness::alive; }));
  const std::string output = background_output(e2e);
  CHECK(output.find("submit: interrupted") != std::string::npos);
  CHECK(output.find('\x1b') == std::string::npos);
  CHECK(living(e2e).empty());
}

TEST_CASE("--only stale runs again what another build of the trainer measured") {
  const EndToEnd e2e;
  const auto trainer = e2e.folder() / "trainer";
  write_file_atomically(trainer,
                        "#!/bin/sh\n[ \"$1\" != --version ] || [ ! -e newer ] || { echo "
                        "'trainer 9.9.9 feed'; exit 0; }\nexec " +
                            EndToEnd::program("trainer") + " \"$@\"\n");
  std::filesystem::permissions(trainer, std::filesystem::perms::owner_all);
  write_file_atomically(e2e.folder() / "here.yaml",
                        "tessera_cluster: 1\nkind: local\ngpus: {cpu: {per_node: 1}}\n"
                        "trainer: {path: " +
                            trainer.string() + "}\n");
  const std::vector<std::string> sweep{
      "-m",    "./tiny.yaml",   "--seq_lens", "16",  "-t",       "fp32",
      "-c",    "./here.yaml",   "--steps",    "12",  "--warmup", "2",
      "--set", "threads=1",     "--project",  "e2e", "--RUN",    "--microbatch_size",
      "1",     "--batch_sizes", "1"};
  CHECK(e2e.run("submit", sweep).exit_code == 0);
  const auto stale = [&] { return e2e.run("submit", with(sweep, {"--only", "stale"})); };
  const CommandResult same = stale();
  CAPTURE(same.err);
  CHECK(same.exit_code == 0);
  CHECK(same.out.find("0 to start") != std::string::npos);
  write_file_atomically(e2e.folder() / "newer", "");
  const CommandResult newer = stale();
  CAPTURE(newer.err);
  CHECK(newer.out.find("1 to start") != std::string::npos);
  REQUIRE(e2e.states().size() == 1);
  CHECK(e2e.states().begin()->second.attempts.size() == 2);
  // A trainer that cannot say its build makes nothing stale in silence.
  std::filesystem::remove(trainer);
  const CommandResult unknown = stale();
  CHECK(unknown.exit_code == static_cast<int>(ExitCode::refused));
  CHECK(unknown.err.find("--only stale: the build of ") != std::string::npos);
}
