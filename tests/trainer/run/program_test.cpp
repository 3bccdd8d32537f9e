// SPDX-License-Identifier: Apache-2.0
// The program as users and schedulers see it: flags, specifications, signals, exit codes.
#include "tests/trainer/run/program.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/file.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::trainer::test;
using tessera::test::TemporaryFolder;
using Json = nlohmann::ordered_json;

TEST_CASE("without a run directory the records go to stdout, people's lines to stderr") {
  const ProgramResult result = train_spec(small_spec(""));
  CHECK(result.exit_code == 0);
  CHECK(records_of(result.out).back().at("status") == "ok");
  CHECK(result.err.find("ok: ") != std::string::npos);
}

TEST_CASE("why a run did not start is told once") {
  sweep::RunSpec spec = small_spec("");
  spec.point.precision = Precision::amp_fp8;
  const ProgramResult result = train_spec(spec);
  CHECK(result.exit_code == 11);
  CHECK(result.err.starts_with("trainer: point.precision: amp_fp8"));
  CHECK(result.err.find("precision", result.err.find("precision") + 1) == std::string::npos);
  CHECK(result.err.ends_with("\nstart-fail\n"));
}

TEST_CASE("the specification comes from a file, stdin or the environment") {
  const TemporaryFolder folder;
  const std::string json = run_spec_json(small_spec(""));
  write_file_atomically(folder / "run.json", json);
  CHECK(run_trainer({.arguments = {"--spec", folder / "run.json"}}).exit_code == 0);
  CHECK(run_trainer({.arguments = {}, .environment = {"TESSERA_SPEC=" + json}}).exit_code == 0);
  const ProgramResult none = run_trainer({.arguments = {}});
  CHECK(none.exit_code == 10);
  CHECK(none.err ==
        "trainer: --spec: no run specification is given; --spec FILE, or the environment variable "
        "TESSERA_SPEC\n");
  CHECK(run_trainer({.arguments = {"--spec", folder / "none.json"}}).exit_code == 10);
}

TEST_CASE("a wrong specification is told by key") {
  Json json = Json::parse(run_spec_json(small_spec("")));
  const auto fault = [](const Json& wrong) {
    const ProgramResult result = run_trainer({.arguments = {"--spec", "-"}, .input = wrong.dump()});
    CHECK(result.exit_code == 10);
    CHECK(result.out == "");
    return result.err;
  };
  Json wrong = json;
  wrong["point"].erase("warmup");
  wrong["point"]["warmpu"] = 1;
  CHECK(fault(wrong).find("unknown key 'warmpu' in a point; did you mean warmup?") !=
        std::string::npos);
  wrong = json;
  wrong["point"]["seq_len"] = "many";
  CHECK(fault(wrong).find("point.seq_len") != std::string::npos);
  wrong = json;
  wrong["point"]["model"].erase("d_model");
  CHECK(fault(wrong).find("d_model") != std::string::npos);
  wrong = json;
  wrong["schema"] = 2;
  CHECK(fault(wrong).find("schema 2 is not known") != std::string::npos);
  CHECK(run_trainer({.arguments = {"--spec", "-"}, .input = "{\"schema\":1"}).exit_code == 10);
  const auto refused = [](const std::vector<std::string>& arguments) {
    const ProgramResult result = run_trainer({.arguments = arguments});
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    return result.err;
  };
  CHECK(refused({"--no-such-flag"}) ==
        "trainer: --no-such-flag: is no flag of trainer; trainer --help lists them\n");
  CHECK(refused({"--threads", "2"}) ==
        "trainer: --threads: does not go with trainer; it goes with trainer selftest, trainer "
        "bench-ops, trainer measure-peak\n");
  CHECK(refused({"--json"}) ==
        "trainer: --json: does not go with trainer; write trainer bench-ops --json\n");
  CHECK(refused({"--bench-ops", "--measure-peak"}) ==
        "trainer: --measure-peak: does not go with trainer bench-ops; write trainer "
        "measure-peak\n");
  CHECK(refused({"--bench-ops", "--profile"}) ==
        "trainer: --profile: does not go with trainer bench-ops; leave it out; trainer bench-ops "
        "--help lists what does\n");
  CHECK(refused({"--bench-ops", "--threads", "0"}).find("--threads: ") != std::string::npos);
  CHECK(refused({"--spec", ""}) == "trainer: --spec: is empty\n");
  CHECK(refused({"--spec", "a", "--spec", "b"}) ==
        "trainer: --spec: is given twice; give it once\n");
}

TEST_CASE("a self-test begins at the case that is asked for") {
  const auto begun_at = [](const std::string& number) {
    return run_trainer(
        {.arguments = {"--selftest", "--small", "--parts", "operations", "--from", number}});
  };
  const ProgramResult all = begun_at("1");
  CHECK(all.exit_code == 0);
  const ProgramResult some = begun_at("40");
  CHECK(some.exit_code == 0);
  // The same cases except the first 39, each in two dtypes; the last line has a time.
  const auto checks = [](const ProgramResult& result) {
    return result.out.substr(0, result.out.find("operations: "));
  };
  CHECK(checks(some).size() < checks(all).size());
  CHECK(!checks(some).empty());
  CHECK(checks(all).ends_with(checks(some)));
  CHECK(std::ranges::count(checks(all), '\n') - std::ranges::count(checks(some), '\n') == 78);
  const ProgramResult none = begun_at("100000");
  CHECK(none.exit_code == 0);
  CHECK(none.out.starts_with("operations: 0 of 0 checks hold"));
  const auto refused = [](std::vector<std::string> arguments) {
    const ProgramResult result = run_trainer({.arguments = std::move(arguments)});
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(refused({"--selftest", "--parts", "operations", "--from", "0"}) ==
        "trainer: --from: 0 is out of range; from 1 to 1073741824\n");
  for (const std::vector<std::string>& others :
       {std::vector<std::string>{"--selftest"}, {"--selftest", "--parts", "bits"}}) {
    std::vector<std::string> arguments = others;
    arguments.insert(arguments.end(), {"--from", "2"});
    CHECK(refused(arguments) ==
          "trainer: --from: goes with one part; add --parts attention or --parts operations\n");
  }
}

TEST_CASE("SIGTERM and SIGINT end a run after the microbatch, with a true footer") {
  for (const int signal : {SIGTERM, SIGINT}) {
    const TemporaryFolder folder;
    sweep::RunSpec spec = small_spec(folder.path());
    spec.point.steps = 900000;
    const ProgramResult result = run_trainer(
        {.arguments = {"--spec", "-"}, .input = run_spec_json(spec), .signal = signal, .when = [&] {
           // Waits until there are some step records.
           std::error_code ignored;
           const auto log = folder / "log.1.0.0.jsonl";
           return std::filesystem::file_size(log, ignored) > 6000 && !ignored;
         }});
    CHECK(result.exit_code == 0);
    const std::vector<Json> records = records_of(read_file(log_in(folder.path())));
    const Json& footer = records.back();
    CHECK(footer.at("t") == "footer");
    CHECK(footer.at("status") == "partial");
    CHECK(footer.at("reason") == "interrupted");
    CHECK(footer.at("ended_by") == "interrupted");
    CHECK(footer.at("measured") > 0);
    CHECK(footer.at("measured") < 900000 - 2);
    CHECK(footer.at("measured_s") > 0);
    // At most 5,000 records for 900,000 steps.
    for (const Json& record : records)
      if (record.at("t") == "step") CHECK(record.at("step").get<int>() % 180 == 0);
  }
}

TEST_CASE("SIGUSR1 ends a run because the time limit is near, with a true footer") {
  for (const bool measured : {true, false}) {
    const TemporaryFolder folder;
    sweep::RunSpec spec = small_spec(folder.path());
    spec.point.steps = 900000;
    if (!measured) spec.point.warmup = 899999;
    const ProgramResult result =
        run_trainer({.arguments = {"--spec", "-"},
                     .input = run_spec_json(spec),
                     .signal = SIGUSR1,
                     .when = [&] {
                       std::error_code ignored;
                       const auto log = folder / "log.1.0.0.jsonl";
                       return std::filesystem::file_size(log, ignored) > 6000 && !ignored;
                     }});
    const Json footer = records_of(read_file(log_in(folder.path()))).back();
    CHECK(footer.at("t") == "footer");
    CHECK(footer.at("reason") == "time limit near");
    CHECK(footer.at("ended_by") == "time-limit");
    CHECK(footer.at("status") == (measured ? "partial" : "timeout"));
    CHECK(footer.at("exit") == result.exit_code);
    CHECK(result.exit_code == (measured ? 0 : 16));
    CHECK(result.err == (measured ? "" : "trainer: time limit near\n"));
    CHECK((footer.at("measured") > 0) == measured);
    CHECK(footer.at("warmup").get<int>() + footer.at("measured").get<int>() < 900000);
    CHECK(result.out.find("(time limit near)") != std::string::npos);
  }
}

TEST_CASE("a run that is interrupted before a measured step has failed") {
  const TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.point.steps = 900000;
  spec.point.warmup = 899999;
  const ProgramResult result = run_trainer(
      {.arguments = {"--spec", "-"}, .input = run_spec_json(spec), .signal = SIGTERM, .when = [&] {
         return std::filesystem::exists(folder / "log.1.0.0.jsonl");
       }});
  CHECK(result.exit_code == 0);
  const Json footer = records_of(read_file(log_in(folder.path()))).back();
  CHECK(footer.at("status") == "failed");
  CHECK(footer.at("reason") == "interrupted");
  CHECK(footer.at("ended_by") == "interrupted");
}

TEST_CASE("a loss that is not finite ends the run with nan") {
  const TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.point.lr = 1e35;
  spec.point.steps = 50;
  const ProgramResult result = train_spec(spec);
  CHECK(result.exit_code == 14);
  const std::vector<Json> records = records_of(read_file(log_in(folder.path())));
  const Json& footer = records.back();
  CHECK(footer.at("status") == "nan");
  CHECK(footer.at("ended_by") == "not-finite");
  CHECK(footer.at("exit") == 14);
  CHECK(footer.at("reason").get<std::string>().find(" at step ") != std::string::npos);
  CHECK(footer.at("steps_skipped") == 1);
  CHECK(records.size() < 20);
  for (const Json& record : records) {
    for (const char* key : {"loss", "grad_norm"})
      if (record.contains(key)) CHECK(record.at(key).is_number());
  }
}

TEST_CASE("what the trainer can do and what the machine reaches are JSON") {
  const ProgramResult can = run_trainer({.arguments = {"--capabilities"}});
  CHECK(can.exit_code == 0);
  const Json json = Json::parse(can.out);
  CHECK(json.at("devices") == Json::array({"cpu"}));
  CHECK(json.at("precisions") == Json::array({"fp32", "amp_bf16"}));
  CHECK(json.at("log_schema") == 2);
  // Capabilities name what it computes on a GPU on every machine; nothing if it was built without
  // CUDA.
  const Json on_gpus{
      {"precisions", {"fp32", "tf32", "amp_bf16"}}, {"sharding", {"NO_SHARD"}}, {"max_ranks", 1}};
  CHECK(json.at("gpu") == (json.at("cuda").contains("toolkit") ? on_gpus : Json()));
  CHECK(json.at("operations").size() >= 17);
  for (const char* key : {"cpu", "blas"}) CHECK(json.at(key).is_string());
  // Whether or not the library knows this CPU, it runs kernels of the CPU's vector width.
  const auto blas = json.at("blas").get<std::string>();
  if (json.at("vector_isa") != "x86-64-v2" && std::getenv("OPENBLAS_CORETYPE") == nullptr)
    CHECK(blas.find("Prescott") == std::string::npos);

  const ProgramResult peak = run_trainer({.arguments = {"--measure-peak", "--threads", "1"}});
  CHECK(peak.exit_code == 0);
  CHECK(Json::parse(peak.out).at("tflops") > 0.0001);
  CHECK(run_trainer({.arguments = {"--measure-peak", "--threads", "011"}}).exit_code == 2);
  CHECK(run_trainer({.arguments = {"--version"}}).out.find("trainer ") == 0);
  CHECK(run_trainer({.arguments = {"--help"}}).exit_code == 0);
}

TEST_CASE("--nproc goes with a run, starts ranks once, and tells a wrong specification once") {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& said) {
    const ProgramResult result = run_trainer({.arguments = arguments, .input = "{}"});
    CAPTURE(said);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(said) != std::string::npos);
  };
  for (const char* question : {"capabilities", "measure-peak", "bench-ops", "print-schedule"})
    refused({"--nproc", "2", question},
            std::string("--nproc: does not go with trainer ") + question);
  refused({"--nproc", "0"}, "--nproc: ");
  refused({"--nproc", "two"}, "--nproc: 'two' is not a decimal integer");
  refused({"--nproc", "1025"}, "--nproc: ");

  const ProgramResult bad =
      run_trainer({.arguments = {"--nproc", "3", "--spec", "-"}, .input = "{}"});
  CHECK(bad.exit_code == 10);
  CHECK(std::ranges::count(bad.err, '\n') == 1);

  const ProgramResult twice =
      run_trainer({.arguments = {"--nproc", "2", "--spec", "-"},
                   .input = "{}",
                   .environment = {"TESSERA_RANK=1", "TESSERA_RANKS=4", "TESSERA_LOCAL_RANK=1",
                                   "TESSERA_NODE=0", "TESSERA_NODES=1"}});
  CHECK(twice.exit_code == 2);
  CHECK(twice.err.find("--nproc: this is rank 1 of 4 already (TESSERA_*)") != std::string::npos);
}

TEST_CASE("the program needs libc, libm and the loader, nothing else") {
  const char* folder = std::getenv("TESSERA_BIN");
  const std::string command =
      "readelf -d " + std::string(folder != nullptr ? folder : "build/release/bin") + "/trainer";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text(65536, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), pipe));
  ::pclose(pipe);
  const std::set<std::string> allowed{"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2",
                                      "ld-linux-x86-64.so.2"};
  int found = 0;
  for (std::size_t at = text.find("(NEEDED)"); at != std::string::npos;
       at = text.find("(NEEDED)", at + 1), ++found) {
    const std::size_t begin = text.find('[', at) + 1;
    const std::string library = text.substr(begin, text.find(']', begin) - begin);
    CAPTURE(library);
#ifndef __SANITIZE_ADDRESS__
    CHECK(allowed.contains(library));
#endif
  }
  CHECK(found >= 2);
}
