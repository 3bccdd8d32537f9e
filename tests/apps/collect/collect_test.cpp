// SPDX-License-Identifier: Apache-2.0
// The program collect: flags, exit codes, messages, files.
#include <doctest/doctest.h>

#include <cstdlib>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "tests/collect/sample_run.h"
#include "tests/temporary.h"

using namespace tessera;

namespace fs = std::filesystem;

namespace {

// An empty folder with a state folder of its own, where the program runs.
class Place {
 public:
  CommandResult run(const std::vector<std::string>& arguments) const {
    const char* bin = std::getenv("TESSERA_BIN");
    REQUIRE(bin != nullptr);
    std::vector<std::string> command{"/usr/bin/env",
                                     "-C",
                                     folder_.path().string(),
                                     "-u",
                                     "TESSERA_WORKSPACE",
                                     "TESSERA_STATE_DIR=" + (folder_ / "state").string(),
                                     std::string(bin) + "/collect"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_command(command);
  }

  // One line on stderr and this exit code; returns the line.
  std::string fault(const std::vector<std::string>& arguments, ExitCode code) const {
    const CommandResult result = run(arguments);
    CAPTURE(result.err);
    CHECK(result.exit_code == static_cast<int>(code));
    CHECK(result.err.find('\n') == result.err.size() - 1);
    CHECK_FALSE(fs::exists(folder_ / "results"));
    return result.err;
  }

  fs::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  test::TemporaryFolder folder_;
};

test::SampleRun sample() {
  test::SampleRun run;
  run.point = test::sample_point("7b", 2048, 48, 6);
  return run;
}

bool holds(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CAPTURE(part);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("a project's results are written, named and printed") {
  const Place place;
  test::write_sample(place / "runs", sample());
  const CommandResult result = place.run({"tput"});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(result.out == "1 row of 1 run: results/tput/results.csv, results/tput/results.md\n");
  holds(read_file(place / "results/tput/results.csv"), "\n7b,2048,8,h100_80gb,46.");
  const std::string markdown = read_file(place / "results/tput/results.md");
  CHECK(markdown.starts_with("# Results of tput\n"));
  const std::string printed = place.run({"tput", "-p"}).out;
  holds(printed, "Precision=amp_bf16");
  holds(printed, "\nModel    MFU    HFU ");
  holds(printed, "\n7b     46.");
  // The same again gives the same bytes.
  const std::string csv = read_file(place / "results/tput/results.csv");
  place.run({"--project", "tput"});
  CHECK(read_file(place / "results/tput/results.csv") == csv);
}

TEST_CASE("workspace, folders, logs, filters and the save path") {
  const Place place;
  test::write_sample(place / "elsewhere", sample());
  const std::string log = "elsewhere/tput/" + test::name_of(sample()) + "/log.1.0.0.jsonl";
  CHECK(place.run({"tput", "--workspace", "elsewhere", "-s", "out/table"}).exit_code == 0);
  CHECK(fs::exists(place / "out/table.csv"));
  CHECK(place.run({"elsewhere", "-s", "out/"}).exit_code == 0);
  CHECK(fs::exists(place / "out/results.md"));
  CHECK(place.run({"elsewhere/tput", "--filters", "7b", "s2048", "-s", "two"}).exit_code == 0);
  CHECK(place.run({"--logs", log, "--save-path", "three", "--print-results"}).exit_code == 0);
  CHECK(read_file(place / "two.csv") == read_file(place / "three.csv"));
}

TEST_CASE("damaged and foreign files are told on stderr, and the rest is collected") {
  const Place place;
  test::write_sample(place / "runs", sample());
  test::SampleRun other = sample();
  other.point.microbatch_size = 3;
  test::write_sample(place / "runs", other, "no log\n");
  const CommandResult result = place.run({"tput"});
  CHECK(result.exit_code == 0);
  holds(result.err, "log.1.0.0.jsonl: no record of a run log in it; left out\n");
  holds(result.out, "2 rows of 2 runs");
}

TEST_CASE("an unknown GPU: no MFU, and the reason is printed") {
  const Place place;
  test::SampleRun run = sample();
  run.device = "NVIDIA Z900";
  run.gpu.reset();
  run.peak_tflops.reset();
  test::write_sample(place / "runs", run);
  CHECK(place.run({"tput"}).err == "collect: no MFU: GPU 'NVIDIA Z900' is not in the catalogue\n");
  write_file_atomically(place / "own.yaml",
                        "tessera_gpus: 1\nz900: {match: [\"^NVIDIA Z900$\"], memory_gib: 100, "
                        "peak_tflops: {amp_bf16: 1000}, source: data sheet}\n");
  CHECK(place.run({"tput", "--gpu-catalogue", "own.yaml"}).err.empty());
  write_file_atomically(place / "own.yaml", "tessera_gpus: 1\nz900: {math: [x]}\n");
  const CommandResult wrong = place.run({"tput", "--gpu-catalogue", "own.yaml"});
  CHECK(wrong.exit_code == static_cast<int>(ExitCode::input));
  holds(wrong.err, "own.yaml:2:");
}

TEST_CASE("bad input gets one line and its exit code, and no file") {
  const Place place;
  holds(place.fault({}, ExitCode::usage), "PROJECT: is missing");
  holds(place.fault({"tput"}, ExitCode::empty), "runs/tput: no run found");
  holds(place.fault({"Tput"}, ExitCode::usage), "project 'Tput' holds 'T'");
  holds(place.fault({"--project", "a--b"}, ExitCode::usage), "--project: project 'a--b'");
  holds(place.fault({"no/such"}, ExitCode::io), "no/such: cannot be read: No such file");
  holds(place.fault({"--logs", "none"}, ExitCode::io), "none: cannot be read");
  holds(place.fault({"tput", "--frobnicate"}, ExitCode::usage), "--frobnicate");
  holds(place.fault({"tput", "--format", "tabel"}, ExitCode::usage), "unknown value 'tabel'");
  holds(place.fault({"show", "tput--7b-s2048-8g-0123456789ab"}, ExitCode::empty), "no such run");
  test::write_sample(place / "runs", sample());
  holds(place.fault({"tput", "--filters", "70b"}, ExitCode::empty), "no run that --filters take");
  write_file_atomically(place / "file", "x");
  holds(place.fault({"tput", "-s", "file/sub/"}, ExitCode::io), "file");
  holds(place.fault({"file"}, ExitCode::usage), "give log files with --logs");
}

TEST_CASE(
    "a flag given twice, without a value, with an empty one, or misspelt is named in one line") {
  const Place place;
  test::write_sample(place / "runs", sample());
  for (const std::string flag :
       {"--project", "--save-path", "--workspace", "--gpu-catalogue", "--format"}) {
    CHECK(place.fault({flag, "a", flag, "b"}, ExitCode::usage) ==
          "collect: " + flag + ": is given twice; give it once\n");
    CHECK(place.fault({flag, ""}, ExitCode::usage) == "collect: " + flag + ": is empty\n");
    CHECK(place.fault({flag}, ExitCode::usage) == "collect: " + flag + ": needs a value\n");
  }
  for (const std::string flag : {"--filters", "--logs"}) {
    CHECK(place.fault({flag, ""}, ExitCode::usage) == "collect: " + flag + ": is empty\n");
    CHECK(place.fault({flag, "x", ""}, ExitCode::usage) == "collect: " + flag + ": is empty\n");
    CHECK(place.fault({flag}, ExitCode::usage) == "collect: " + flag + ": needs a value\n");
  }
  for (const std::string flag : {"--project", "--workspace", "--gpu-catalogue"}) {
    CHECK(place.fault({"show", "x", flag, ""}, ExitCode::usage) ==
          "collect: " + flag + ": is empty\n");
    CHECK(place.fault({"show", "x", flag, "a", flag, "b"}, ExitCode::usage) ==
          "collect: " + flag + ": is given twice; give it once\n");
  }
  CHECK(place.fault({"-s", "a", "-s", "b"}, ExitCode::usage) ==
        "collect: --save-path: is given twice; give it once\n");
  CHECK(place.fault({""}, ExitCode::usage) == "collect: PROJECT: is empty\n");
  CHECK(place.fault({"tput", ""}, ExitCode::usage) == "collect: PROJECT: is empty\n");
  CHECK(place.fault({"show", ""}, ExitCode::usage) == "collect: RUN: is empty\n");
  holds(place.fault({"show"}, ExitCode::usage), "collect: RUN: is missing; write collect show RUN");
  CHECK(place.fault({"tput", "--filter", "7b"}, ExitCode::usage) ==
        "collect: --filter: is no flag of collect; did you mean --filters?\n");
}

TEST_CASE("help and version") {
  const Place place;
  holds(place.run({"--help"}).out, "--save-path");
  CHECK(place.run({"--version"}).exit_code == 0);
  CHECK(place.run({"--version"}).out.starts_with("collect 0."));
}

TEST_CASE("among several places, a name that is nothing is refused, and nothing is written") {
  const Place place;
  test::write_sample(place / "runs", sample());
  CHECK(place.fault({"tput", "nope"}, ExitCode::empty)
            .starts_with("collect: nope: no project nope in "));
  place.fault({"nope", "tput"}, ExitCode::empty);
  place.fault({"runs", "nope"}, ExitCode::empty);
  place.fault({"nope", "--logs", "runs"}, ExitCode::empty);
  holds(place.fault({"tput", "--project", "nope"}, ExitCode::empty),
        "--project: no run of project nope in ");
  holds(place.fault({"runs", "--project", "nope"}, ExitCode::empty),
        "--project: no run of project nope in ");
  holds(place.fault({"--project", "nope"}, ExitCode::empty),
        "--project: no run of project nope in ");
  // A filter that takes nothing of one of two projects is fine.
  test::SampleRun other = sample();
  other.project = "more";
  test::write_sample(place / "runs", other);
  CHECK(place.run({"tput", "more", "--filters", "more--"}).exit_code == 0);
}

TEST_CASE("logs without a record: one line") {
  const Place place;
  write_file_atomically(place / "log.txt", "no log\n");
  CHECK(place.fault({"--logs", "log.txt"}, ExitCode::empty) ==
        "collect: no run found: log.txt: no record of a run log in it; left out\n");
  write_file_atomically(place / "log2.txt", "no log\n");
  holds(place.fault({"--logs", "log.txt", "log2.txt"}, ExitCode::empty),
        "left out; 1 more file was left out\n");
}

TEST_CASE("show finds a run by its name and by its id in whichever project it is") {
  const Place place;
  test::SampleRun other = sample();
  other.project = "other";
  other.point.seed = 18;
  test::write_sample(place / "runs", sample());
  test::write_sample(place / "elsewhere", other);
  make_directories(place / "state");
  write_file_atomically(place / "state/projects.json",
                        "{\"last\":\"tput\",\"projects\":{\"tput\":\"" + (place / "runs").string() +
                            "\",\"other\":\"" + (place / "elsewhere").string() + "\"}}");
  CHECK(place.run({"show", test::name_of(other)}).exit_code == 0);
  const CommandResult by_id = place.run({"show", test::id_of(other)});
  CHECK(by_id.err.empty());
  CHECK(by_id.out == place.run({"show", test::name_of(other)}).out);
  CHECK(place.run({"show", test::id_of(sample())}).exit_code == 0);
  const std::string nowhere = place.fault({"show", "0123456789ab"}, ExitCode::empty);
  holds(nowhere, "runs/tput");
  holds(nowhere, "elsewhere/other");
}

TEST_CASE("show of one repeat says so, and which one stands for all") {
  const Place place;
  test::SampleRun run = sample();
  run.repeats = 3;
  for (const double step_s : {1.25, 1.15, 1.20}) {
    run.step_s = step_s;
    test::write_sample(place / "runs", run);
    ++run.repeat;
  }
  const std::string id = test::id_of(run);
  const std::string first = place
                                .run({"show", test::name_of([&] {
                                        auto one = run;
                                        one.repeat = 1;
                                        return one;
                                      }())})
                                .out;
  holds(first, "Repeat 1 of 3; 3 ended ok. In results.csv tput--7b-s2048-8g-" + id +
                   "-r3 stands for all, with ");
  holds(first, "  repeats_ok               3\n");
  run.repeat = 3;
  holds(place.run({"show", test::name_of(run)}).out,
        "Repeat 3 of 3; 3 ended ok. This one stands for all in results.csv; they differ by ");
}

TEST_CASE("MFU above 100 % cannot be read past") {
  const Place place;
  test::SampleRun run = sample();
  run.step_s = 0.4;
  test::write_sample(place / "runs", run);
  const CommandResult result = place.run({"tput"});
  CHECK(result.exit_code == 0);
  holds(result.err, "collect: 1 row with MFU or HFU above 100 %: the peak is too low");
  const std::string markdown = read_file(place / "results/tput/results.md");
  holds(markdown, "| **134.");
  holds(markdown, " (!)** [^above-peak] |");
  holds(markdown, "\n[^above-peak]: above-peak: not a utilization");
  holds(read_file(place / "results/tput/results.csv"), ",above-peak,");
}

TEST_CASE("show prints the specification, the log and the calculation") {
  const Place place;
  const auto folder = test::write_sample(place / "runs", sample());
  const CommandResult by_name = place.run({"show", test::name_of(sample())});
  CHECK(by_name.exit_code == 0);
  holds(by_name.out, "MFU and HFU\n");
  holds(by_name.out, "2 x 6658859008 parameters");
  CHECK(place.run({"show", folder.string()}).out.substr(0, 40) == by_name.out.substr(0, 40));
  CHECK(place.run({"show", test::id_of(sample()), "--project", "tput"}).out == by_name.out);
}
