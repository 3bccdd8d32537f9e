// SPDX-License-Identifier: Apache-2.0
// Sweeps that are interrupted, killed, cancelled or cannot be written, and how they go on.
#include <fmt/format.h>
#include <sys/mount.h>

#include <algorithm>
#include <fstream>

#include "tests/apps/end_to_end/end_to_end.h"

using namespace tessera;
using test::count_of;
using test::EndToEnd;
using test::kSubmit;
using test::living;
using test::training;
using test::wait_until;

TEST_CASE("Ctrl-C ends the running point with a true footer, and the same command goes on") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2]", 1000000);
  const pid_t submit = e2e.start("submit", kSubmit);
  REQUIRE(wait_until([&] { return training(e2e); }));
  ::kill(submit, SIGINT);
  CHECK(EndToEnd::exit_code(submit) == 130);
  CHECK(living(e2e).empty());
  REQUIRE(e2e.logs().size() == 1);
  const std::string log = read_file(e2e.logs()[0]);
  CHECK(count_of(log, "\"t\":\"footer\"") == 1);
  CHECK(log.find("\"reason\":\"interrupted") != std::string::npos);

  const CommandResult status = e2e.run("submit", {"status"});
  CHECK(status.exit_code == 0);
  CHECK(status.out.find("interrupted") != std::string::npos);
  CHECK(status.out.find("1 missing") != std::string::npos);

  const pid_t second = e2e.start("submit", kSubmit);
  REQUIRE(wait_until([&] { return living(e2e).size() == 1; }));
  CHECK(e2e.states().size() == 1);
  CHECK(e2e.states().begin()->second.attempts.size() == 2);
  ::kill(second, SIGTERM);
  CHECK(EndToEnd::exit_code(second) == 130);
}

TEST_CASE(
    "the time limit ends a run as partial, which is a result: it is repeated only by --only all") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 1000000);
  const pid_t submit = e2e.start("submit", kSubmit);
  REQUIRE(wait_until([&] {
    return std::ranges::any_of(e2e.logs(), [](const auto& log) {
      return count_of(read_file_if_exists(log).value_or(""), "\"warmup\":false") > 0;
    });
  }));
  for (const ProcessRef& trainer : living(e2e)) ::kill(trainer.pid, SIGUSR1);
  CHECK(EndToEnd::exit_code(submit) == static_cast<int>(ExitCode::runs_failed));
  const auto attempt = e2e.states().begin()->second.attempts[0];
  CHECK(attempt.status == runlog::Status::partial);
  CHECK(attempt.reason == "time limit near");
  CHECK(e2e.run("collect", {}).exit_code == 0);
  CHECK(e2e.results()[1].find(",partial,time limit near,") != std::string::npos);
  CHECK(e2e.run("submit", kSubmit).out.find("0 to start, 1 not ok before (1 partial)") !=
        std::string::npos);
  CHECK(e2e.logs().size() == 1);
}

TEST_CASE("a killed submit leaves its run alive; the next one adopts it and runs nothing twice") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2]", 20000);
  const pid_t first = e2e.start("submit", kSubmit);
  REQUIRE(wait_until([&] { return training(e2e); }));
  ::kill(first, SIGKILL);
  CHECK(EndToEnd::exit_code(first) == 128 + SIGKILL);
  REQUIRE(living(e2e).size() == 1);
  const CommandResult second = e2e.run("submit", kSubmit);
  CAPTURE(second.out);
  CHECK(second.exit_code == 0);
  CHECK(second.out.find("1 running already (waited for)") != std::string::npos);
  CHECK(second.out.find("2 ok, 0 not ok") != std::string::npos);
  CHECK(e2e.logs().size() == 2);
  for (const auto& [run, state] : e2e.states()) {
    CHECK(state.attempts.size() == 1);
    CHECK(state.attempts[0].status == runlog::Status::ok);
  }
}

TEST_CASE(
    "a killed trainer is a row with its reason, and --only failed runs it again beside the old "
    "attempt") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 20000);
  const pid_t submit = e2e.start("submit", kSubmit);
  REQUIRE(wait_until([&] { return training(e2e); }));
  for (const ProcessRef& trainer : living(e2e)) ::kill(trainer.pid, SIGKILL);
  CHECK(EndToEnd::exit_code(submit) == static_cast<int>(ExitCode::runs_failed));
  CHECK(e2e.run("collect", {}).exit_code == 0);
  REQUIRE(e2e.results().size() == 2);
  const std::string row = e2e.results()[1];
  CAPTURE(row);
  CHECK((row.find("signal 9") != std::string::npos || row.find("footer") != std::string::npos));

  // Cut short after measured steps it is partial; without any it is failed. Both can be asked for
  // by name.
  const std::string status(to_text(e2e.states().begin()->second.attempts[0].status.value()));
  CHECK((status == "partial" || status == "failed"));
  const CommandResult again = e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--only",
                                                 status == "failed" ? "failed" : "all"});
  CHECK(again.exit_code == 0);
  CHECK(e2e.logs().size() == 2);
  CHECK(e2e.run("collect", {}).exit_code == 0);
  CHECK(e2e.results()[1].find(",ok,") != std::string::npos);
}

TEST_CASE("two submits at once: the second is told who works, and starts nothing") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 1000000);
  const pid_t first = e2e.start("submit", kSubmit);
  REQUIRE(wait_until([&] { return training(e2e); }));
  const CommandResult second = e2e.run("submit", kSubmit);
  CHECK(second.exit_code == static_cast<int>(ExitCode::locked));
  CHECK(count_of(second.err, "\n") == 1);
  CHECK(second.err.find("another submit works on this project") != std::string::npos);
  CHECK(e2e.logs().size() == 1);

  const CommandResult cancel = e2e.run("submit", {"cancel", "e2e"});
  CHECK(cancel.exit_code == 0);
  CHECK(count_of(cancel.out, "told to end: e2e--") == 1);
  CHECK(EndToEnd::exit_code(first) == static_cast<int>(ExitCode::interrupted));
  CHECK(living(e2e).empty());
  CHECK(e2e.run("submit", {"cancel", "e2e"}).out.find("nothing of yours runs") !=
        std::string::npos);
}

TEST_CASE("cancel ends a sweep: the submit at work starts no more, and rows say who ended them") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2, 3]", 1000000);
  const pid_t submit = e2e.start("submit", kSubmit);
  REQUIRE(wait_until([&] { return training(e2e); }));
  const CommandResult cancel = e2e.run("submit", {"cancel"});
  CAPTURE(cancel.out);
  CHECK(cancel.exit_code == 0);
  CHECK(cancel.out.find(fmt::format("the submit at work, pid {}\n", submit)) != std::string::npos);
  CHECK(EndToEnd::exit_code(submit) == static_cast<int>(ExitCode::interrupted));
  CHECK(living(e2e).empty());
  REQUIRE(e2e.states().size() == 1);
  // With measured steps its figures stand, as partial.
  const auto attempt = e2e.states().begin()->second.attempts[0];
  CHECK(attempt.status == runlog::Status::partial);
  CHECK(attempt.reason == "cancelled by its user");
  CHECK(count_of(read_file(e2e.logs()[0]), "\"t\":\"footer\"") == 1);
  const CommandResult status = e2e.run("submit", {"status"});
  CHECK(status.out.find("1 partial, 2 missing") != std::string::npos);
  CHECK(status.out.find(": cancelled by its user") != std::string::npos);
  CHECK(e2e.run("collect", {}).exit_code == 0);
  CHECK(std::ranges::any_of(e2e.results(), [](const std::string& row) {
    return row.find(",partial,") != std::string::npos &&
           row.find("cancelled by its user") != std::string::npos;
  }));
}

TEST_CASE("cancel of one run ends that run, and the submit goes on with the next") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2]", 1000000);
  const pid_t submit = e2e.start("submit", kSubmit);
  REQUIRE(wait_until([&] { return training(e2e); }));
  const std::string first = e2e.states().begin()->first;
  CHECK(e2e.run("submit", {"cancel", "e2e", first}).exit_code == 0);
  REQUIRE(wait_until([&] { return e2e.states().size() == 2 && living(e2e).size() == 1; }));
  const CommandResult unknown = e2e.run("submit", {"cancel", "e2e", "nope"});
  CHECK(unknown.exit_code == static_cast<int>(ExitCode::empty));
  CHECK(unknown.err ==
        "submit: nope: no run of this project that was started; submit status e2e --all lists its "
        "runs\n");
  CHECK(e2e.run("submit", {"cancel", "e2e"}).exit_code == 0);
  CHECK(EndToEnd::exit_code(submit) == static_cast<int>(ExitCode::interrupted));
}

TEST_CASE("a result that was lost since is missing for submit too, and is trained again") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2, 3]", 12);
  REQUIRE(e2e.run("submit", kSubmit).exit_code == 0);
  REQUIRE(e2e.logs().size() == 3);
  std::filesystem::remove_all(e2e.logs()[0].parent_path());
  const auto cut = e2e.logs()[0];
  const std::string log = read_file(cut);
  write_file_atomically(cut, log.substr(0, log.size() / 2));
  const CommandResult status = e2e.run("submit", {"status"});
  CHECK(status.out.find("1 ok, 2 missing") != std::string::npos);
  CHECK(status.out.find(": it ended ok, but its log is gone or damaged") != std::string::npos);
  const CommandResult again = e2e.run("submit", kSubmit);
  CAPTURE(again.out);
  CHECK(again.exit_code == 0);
  CHECK(again.out.find("3 runs, 2 to start, 1 done before\n") != std::string::npos);
  CHECK(e2e.run("submit", kSubmit).out.find("0 to start, 3 done before") != std::string::npos);
  CHECK(e2e.run("collect", {}).exit_code == 0);
  CHECK(std::ranges::count_if(e2e.results(), [](const auto& row) {
          return row.find(",ok,") != std::string::npos;
        }) == 3);
}

TEST_CASE("what cannot be written is said in one line, and nothing is trained") {
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "1", 12);
  write_file_atomically(e2e.folder() / "file", "");
  const CommandResult no_folder =
      e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--workspace", "file"});
  CHECK(no_folder.exit_code == static_cast<int>(ExitCode::io));
  CHECK(count_of(no_folder.err, "\n") == 1);
  CHECK(no_folder.err.find((e2e.folder() / "file").string()) != std::string::npos);

  REQUIRE(e2e.run("submit", kSubmit).exit_code == 0);
  std::filesystem::path ledger;
  for (const auto& entry : std::filesystem::directory_iterator(e2e.project() / ".tessera/ledger"))
    ledger = entry.path();
  std::string content = read_file(ledger);
  content[10] ^= 1;
  write_file_atomically(ledger, content);
  const CommandResult corrupt =
      e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--only", "all"});
  CHECK(corrupt.exit_code == static_cast<int>(ExitCode::conflict));
  CHECK(count_of(corrupt.err, "\n") == 1);
  CHECK(corrupt.err.find(ledger.string() + ":1: ") != std::string::npos);
  CHECK(e2e.logs().size() == 1);
  // The rows that the logs give are there all the same.
  CHECK(e2e.run("collect", {}).exit_code == 0);
  CHECK(e2e.results().size() == 2);
}

TEST_CASE("a full disk: one line, its exit code, and the results of before stay whole") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: mounting a small file system needs root");
    return;
  }
  const EndToEnd e2e;
  e2e.write_sweep("sweep.yaml", "[1, 2]", 12);
  const auto small = e2e.folder() / "small";
  std::filesystem::create_directories(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k") != 0) {
    MESSAGE("skipped: no tmpfs can be mounted here");
    return;
  }
  std::ofstream(small / "filler") << std::string(60000, 'x');
  const CommandResult full =
      e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--workspace", "small"});
  CAPTURE(full.err);
  CAPTURE(full.out);
  CHECK(full.exit_code != 0);
  CHECK(count_of(full.err, "\n") == 1);
  CHECK((full.err.find("No space left") != std::string::npos ||
         full.out.find("No space left") != std::string::npos));
  std::filesystem::remove(small / "filler");
  const CommandResult more = e2e.run("submit", {"--sweep", "sweep.yaml", "--RUN", "--only", "all"});
  CAPTURE(more.err);
  CHECK(more.exit_code == 0);
  ::umount(small.c_str());
}
