// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/project/run_output.h"

#include <doctest/doctest.h>

#include <fstream>
#include <mutex>
#include <thread>

#include "lib/base/error.h"
#include "lib/base/process.h"
#include "tests/apps/submit/loop/project.h"

using namespace tessera;
using namespace tessera::submit;
using runlog::Status;
using test::Project;

namespace {

void append(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

}  // namespace

TEST_CASE("only what is new is printed, whether a file grows, is replaced, is cut or comes later") {
  const test::TemporaryFolder folder;
  const std::vector<std::filesystem::path> files{folder / "a", folder / "b"};
  std::string text;
  OutputPrinter printer([&](std::string_view bytes) { text += bytes; });
  const auto printed = [&] {
    text.clear();
    const bool any = printer.print_new(files);
    CHECK(any == !text.empty());
    return text;
  };
  CHECK(printed().empty());
  CHECK_FALSE(printer.has_printed());
  append(files[0], "one\n");
  CHECK(printed() == "one\n");
  CHECK(printed().empty());
  append(files[0], "half");
  CHECK(printed() == "half");
  append(files[1], "other\n");
  CHECK(printed() == "\n==> b <==\nother\n");
  append(files[0], " a line\n");
  append(files[1], "more\n");
  CHECK(printed() == "==> a <==\n a line\n==> b <==\nmore\n");
  append(files[1], "and more\n");
  CHECK(printed() == "and more\n");
  write_file_atomically(files[1], "a new file that is longer than the one before it was\n");
  CHECK(printed() == "a new file that is longer than the one before it was\n");
  std::filesystem::resize_file(files[1], 0);
  CHECK(printed().empty());
  append(files[1], "after the cut\n");
  CHECK(printed() == "after the cut\n");
  std::filesystem::remove(files[1]);
  CHECK(printed().empty());
}

TEST_CASE("the newest attempt's output is printed, or why there is none") {
  Project project;
  test::OneScheduler schedulers(project.dir(), project.scheduler);
  CHECK(test::fault_of([&] { choose_output(project.dir(), schedulers, "", 0); }, ExitCode::empty)
            .find("nothing was submitted here") != std::string::npos);
  project.submit(2);
  const std::string run = Project::run_of(1);
  std::string text;
  const auto sink = [&](std::string_view bytes) { text += bytes; };
  const auto print = [&](const std::string& name, int attempt) {
    text.clear();
    const RunOutput output = choose_output(project.dir(), schedulers, name, attempt);
    print_output(project.dir(), schedulers, output, sink);
    return text;
  };
  project.scheduler.jobs.at("101").state.reason = "Priority";
  CHECK(test::fault_of([&] { print(run, 0); }, ExitCode::empty) ==
        run + ": attempt 1 has no output: pending (Priority)");
  CHECK(test::fault_of([&] { print("", 0); }, ExitCode::empty) ==
        "p: no run has output yet; submit status tells where they stand");
  append(project.dir() / run / "out.1.0.0", "step 1\n");
  CHECK(print(run, 0) == "step 1\n");
  append(project.dir() / run / "job.1.out", "srun: hello\n");
  CHECK(print(run, 1) == "==> job.1.out <==\nsrun: hello\n==> out.1.0.0 <==\nstep 1\n");
  CHECK(test::fault_of([&] { print(run, 3); }, ExitCode::empty) ==
        run + ": had no attempt 3; it had 1");

  // A second attempt that has printed nothing says where there is something.
  project.end(run, 1, Status::failed);
  project.options.select.only = Only::failed;
  project.submit(2);
  CHECK(test::fault_of([&] { print(run, 0); }, ExitCode::empty) ==
        run + ": attempt 2 has no output: pending; --attempt 1 has");
  CHECK(test::fault_of([&] { print("nope", 0); }, ExitCode::empty).starts_with("nope: no run"));
}

TEST_CASE("without a name it is the only run that runs, else the newest with output") {
  Project project;
  test::OneScheduler schedulers(project.dir(), project.scheduler);
  project.submit(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  project.submit(4);
  for (int point = 1; point <= 3; ++point)
    append(project.dir() / Project::run_of(point) / "out.1.0.0", "x\n");
  auto& jobs = project.scheduler.jobs;
  jobs.at("102").state.phase = test::Phase::running;
  RunOutput chosen = choose_output(project.dir(), schedulers, "", 0);
  CHECK(chosen.run == Project::run_of(2));
  CHECK(chosen.why == "the only one that runs");
  append(project.dir() / Project::run_of(4) / "out.1.0.0", "x\n");
  jobs.at("103").state.phase = test::Phase::running;
  chosen = choose_output(project.dir(), schedulers, "", 0);
  CHECK(chosen.run == Project::run_of(4));
  CHECK(chosen.why == "2 run; the newest of all that has output");
}

TEST_CASE("following goes on until the run has ended, and prints its last words") {
  Project project;
  test::OneScheduler schedulers(project.dir(), project.scheduler);
  project.submit(1);
  const std::string run = Project::run_of(1);
  const auto out = project.dir() / run / "out.1.0.0";
  std::string text;
  const auto sink = [&](std::string_view bytes) { text += bytes; };
  std::vector<std::string> notes;
  const auto note = [&](const std::string& line) { notes.push_back(line); };
  const RunOutput output = choose_output(project.dir(), schedulers, run, 0);
  int questions = 0;
  const auto at_question = [&](const std::function<void(int)>& act) {
    project.scheduler.on_query = [&questions, act] { act(++questions); };
  };
  SUBCASE("as the cluster says, though it was silent for a while and nothing was there at first") {
    at_question([&](int number) {
      project.scheduler.unreachable = number == 2;
      if (number == 1) append(out, "begun\n");
      if (number < 3) return;
      append(out, "last words\n");
      project.scheduler.jobs.at("101").state.phase = test::Phase::ended;
    });
    follow_output(project.dir(), schedulers, output, sink, note);
    CHECK(text == "begun\nlast words\n");
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find("fake does not answer") != std::string::npos);
  }
  SUBCASE("as its footer says, where the cluster still shows it") {
    project.scheduler.jobs.at("101").state.phase = test::Phase::running;
    append(out, "begun\n");
    at_question([&](int number) {
      if (number == 1) project.write_log(run, 1, Status::ok);
      if (number == 2) append(out, "last words\n");
    });
    follow_output(project.dir(), schedulers, output, sink, note);
    CHECK(text == "begun\nlast words\n");
  }
  SUBCASE("and says why there was nothing") {
    at_question([&](int) {
      auto& state = project.scheduler.jobs.at("101").state;
      state.phase = test::Phase::ended;
      state.end = Status::node_fail;
      state.end_reason = "NODE_FAIL";
    });
    CHECK(test::fault_of([&] { follow_output(project.dir(), schedulers, output, sink, note); },
                         ExitCode::empty) ==
          run + ": attempt 1 has no output: node-fail (NODE_FAIL)");
  }
}
