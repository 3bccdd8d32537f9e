// SPDX-License-Identifier: Apache-2.0
// Ranks as processes, started by `trainer --nproc N`: they train as one rank does, and end together
// with one true footer, whatever happens to any of them.
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/base/file.h"
#include "lib/base/process.h"
#include "tests/temporary.h"
#include "tests/trainer/run/program.h"
#include "tests/trainer/train/ranks.h"
#include "trainer/comm/gloo/gloo.h"
#include "trainer/run/accept.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;
using tessera::test::TemporaryFolder;
using Json = nlohmann::ordered_json;

namespace {

// Steps that take longer than any of these tests, with a record every few steps.
constexpr int kForever = 40'000;

bool has_gloo() {
  return std::filesystem::exists(trainer_path().parent_path() / "tessera-gloo.so");
}

// Skips a test if the Gloo module is missing. All tests begin with it except that of a missing
// module.
#define NEEDS_GLOO()                                               \
  if (!has_gloo()) {                                               \
    MESSAGE("skipped: built without Gloo, no ranks as processes"); \
    return;                                                        \
  }

sweep::RunSpec spec_of(const std::filesystem::path& run_dir, int ranks, std::int64_t batch = 12) {
  sweep::RunSpec spec = small_spec(run_dir);
  spec.point.gpus = ranks;
  spec.point.global_batch = batch;
  spec.point.sharding_strategy = Sharding::no_shard;
  return spec;
}

ProgramOptions options_of(const sweep::RunSpec& spec, int ranks) {
  return {.arguments = {"--nproc", std::to_string(ranks), "--spec", "-"},
          .input = run_spec_json(spec)};
}

ProgramResult train_on(const sweep::RunSpec& spec, int ranks) {
  return run_trainer(options_of(spec, ranks));
}

std::vector<Json> log_of(const TemporaryFolder& folder, int rank = 0) {
  return records_of(read_file(folder / ("log.1.0." + std::to_string(rank) + ".jsonl")));
}

bool has_log(const TemporaryFolder& folder, int rank) {
  return std::filesystem::exists(folder / ("log.1.0." + std::to_string(rank) + ".jsonl"));
}

std::vector<double> losses(const std::vector<Json>& records) {
  std::vector<double> all;
  for (const Json& record : records)
    if (record.at("t") == "step") all.push_back(record.at("loss"));
  return all;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return largest;
}

// Waits until rank 0's log has some step records.
void wait_for_steps(const TemporaryFolder& folder) {
  for (int i = 0; i < 6000; ++i) {
    std::error_code ignored;
    if (std::filesystem::file_size(folder / "log.1.0.0.jsonl", ignored) > 8000 && !ignored) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  FAIL("no steps");
}

// Returns the OpenBLAS core of this process, so that a trainer's GEMMs give the same bits.
std::string blas_core() {
  const std::string blas = cpu_device(1)->info().blas;  // "... USE_OPENMP SkylakeX MAX_THREADS=64"
  const std::size_t end = blas.find(" MAX_THREADS");
  const std::size_t begin = blas.rfind(' ', end - 1) + 1;
  return blas.substr(begin, end - begin);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("1, 2 and 4 ranks have the same loss curve, and 4 the bits of 4 threads") {
  NEEDS_GLOO();
  std::vector<std::vector<double>> curves;
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    const TemporaryFolder folder;
    sweep::RunSpec spec = spec_of(folder.path(), ranks);
    spec.point.steps = 20;
    ProgramOptions options = options_of(spec, ranks);
    options.environment = {"OPENBLAS_CORETYPE=" + blas_core()};
    const ProgramResult result = run_trainer(options);
    CHECK(result.err == "");
    CHECK(result.exit_code == 0);
    const std::vector<Json> records = log_of(folder);
    curves.push_back(losses(records));
    CHECK(curves.back().size() == 20);
    CHECK(curves.back().back() != curves.back().front());
    const double difference = largest_difference(curves.back(), curves.front());
    MESSAGE(ranks, " ranks: loss curve differs by ", difference);
    CHECK(difference < 1e-6);

    CHECK(records[2].at("t") == "effective");
    CHECK(records[2].at("gpus") == ranks);
    CHECK(records[2].at("nodes") == 1);
    CHECK(records[2].at("global_batch") == 12);
    CHECK(records[2].at("microbatch_size") == 2);
    CHECK(records[2].at("accum") == 12 / ranks / 2 + (12 / ranks % 2));
    CHECK(records[2].at("sharding_strategy") == "NO_SHARD");
    CHECK(records[3].at("t") == "host");
    CHECK(records[3].at("count") == ranks);
    CHECK(records[3].at("host") == host_name());
    CHECK(records[4].at("t") == "software");
    for (const Json& record : records) CHECK(record.at("rank") == 0);
    const Json& footer = records.back();
    CHECK(footer.at("status") == "ok");
    CHECK(footer.at("measured") == 18);
    CHECK(footer.at("tokens") == 18 * 12 * 16);
    const Json row = row_of(records);
    CHECK(row.at("gpus") == ranks);
    CHECK(row.at("device_count") == ranks);
    CHECK(row.at("hosts") == host_name());
    double seconds = 0;
    for (const Json& record : records)
      if (record.at("t") == "step" && !record.at("warmup"))
        seconds += record.at("seconds").get<double>();
    CHECK(footer.at("measured_s") >= doctest::Approx(seconds));
    CHECK(footer.at("measured_s") < 2 * seconds);
    CHECK(footer.at("step_s").at("max_over_ranks") >= footer.at("step_s").at("median"));
    for (int rank = 1; rank < ranks; ++rank) CHECK_FALSE(has_log(folder, rank));
    CHECK_FALSE(std::filesystem::exists(folder / "rendezvous.1.0"));

    if (ranks != 4) continue;
    Setup setup = setup_of(spec, 0);
    setup.memory.world = 1;
    setup.memory.device_batch = 12;
    const std::vector<float> threads = train_ranks(setup, 4, 20)[0].losses;
    CHECK(curves.back() == std::vector<double>(threads.begin(), threads.end()));
  }
}

TEST_CASE("bf16 modes run on several ranks, PURE too") {
  NEEDS_GLOO();
  for (const MixedPrecision mixed :
       {MixedPrecision::default_, MixedPrecision::pure, MixedPrecision::full}) {
    const TemporaryFolder folder;
    sweep::RunSpec spec = spec_of(folder.path(), 2);
    spec.point.precision = Precision::amp_bf16;
    spec.point.mixed_precision = mixed;
    CHECK(train_on(spec, 2).exit_code == 0);
    const std::vector<Json> records = log_of(folder);
    CHECK(records[2].at("mixed_precision") == to_text(mixed));
    CHECK(losses(records).size() == 6);
  }
}

TEST_CASE("what the ranks that were started cannot train is refused, once") {
  NEEDS_GLOO();
  const auto refused = [](const sweep::RunSpec& spec, int ranks, int code,
                          const std::string& reason) {
    const ProgramResult result = train_on(spec, ranks);
    CHECK(result.exit_code == code);
    CAPTURE(result.err);
    CHECK(result.err.starts_with("trainer: " + reason));
    CHECK(result.err.find(reason, 10) == std::string::npos);  // not a second time
  };
  const TemporaryFolder folder;
  sweep::RunSpec spec = spec_of(folder.path(), 2, 5);
  refused(spec, 2, 10, "point.global_batch: 5 is not divisible by 2 ranks; a multiple of 2\n");
  const Json footer = log_of(folder).back();
  CHECK(footer.at("status") == "start-fail");
  CHECK(footer.at("exit") == 10);
  CHECK_FALSE(has_log(folder, 1));

  const TemporaryFolder other;
  spec = spec_of(other.path(), 4);
  refused(spec, 2, 10, "point.gpus: 2 ranks were started, the point has 4 gpus; start 4\n");
  CHECK(train_spec(spec).err.starts_with(
      "trainer: point.gpus: 4: one process is one rank; start it as trainer --nproc 4, by srun"));
  spec = spec_of(other.path(), 2);
  spec.attempt = 3;
  spec.point.sharding_strategy = Sharding::full_shard;
  refused(spec, 2, 11,
          "point.sharding_strategy: FULL_SHARD: over several ranks it comes later; use NO_SHARD\n");
  spec = spec_of(other.path(), 2);
  spec.attempt = 4;
  spec.profile = true;
  refused(spec, 2, 11, "profile: measures the operations of one rank");
}

TEST_CASE("threads that are not asked for are divided among the ranks of a machine") {
  NEEDS_GLOO();
  const TemporaryFolder folder;
  sweep::RunSpec spec = spec_of(folder.path(), 2);
  spec.point.threads = 0;
  CHECK(train_on(spec, 2).exit_code == 0);
  CHECK(log_of(folder)[2].at("threads") == std::max(1, usable_cpus() / 2));
}

TEST_CASE("without a peak each rank measures, beside the others") {
  NEEDS_GLOO();
  const TemporaryFolder folder;
  sweep::RunSpec spec = spec_of(folder.path(), 2);
  spec.peak.reset();
  CHECK(train_on(spec, 2).exit_code == 0);
  const Json row = row_of(log_of(folder));
  CHECK(row.at("peak_tflops") > 0);
  CHECK(row.at("peak_source").get<std::string>().ends_with(", mean of 2 ranks"));
}

TEST_CASE("without a run directory all records go to stdout") {
  NEEDS_GLOO();
  const ProgramResult result = train_on(spec_of("", 2), 2);
  CHECK(result.exit_code == 0);
  CHECK(records_of(result.out).back().at("status") == "ok");
}

TEST_CASE("a signal to all ranks or to any one ends all behind the same step") {
  NEEDS_GLOO();
  struct Case {
    int signal;
    int rank;  // -1: all, by the launcher
    bool measured;
  };
  for (const Case& one : {Case{SIGTERM, -1, true}, Case{SIGTERM, 1, true}, Case{SIGUSR1, 1, true},
                          Case{SIGUSR1, 0, false}, Case{SIGTERM, 1, false}}) {
    CAPTURE(one.signal);
    CAPTURE(one.rank);
    const TemporaryFolder folder;
    sweep::RunSpec spec = spec_of(folder.path(), 2);
    spec.point.steps = kForever;
    if (!one.measured) spec.point.warmup = kForever - 1;
    StartedTrainer trainer(options_of(spec, 2));
    wait_for_steps(folder);
    ::kill(one.rank < 0 ? trainer.pid() : trainer.rank(one.rank), one.signal);
    const ProgramResult result = trainer.wait();
    const std::vector<Json> records = log_of(folder);
    const Json& footer = records.back();
    REQUIRE(footer.at("t") == "footer");
    const bool time_limit = one.signal == SIGUSR1;
    CHECK(footer.at("reason") == (time_limit ? "time limit near" : "interrupted"));
    CHECK(footer.at("ended_by") == (time_limit ? "time-limit" : "interrupted"));
    CHECK(footer.at("status") == (one.measured ? "partial" : time_limit ? "timeout" : "failed"));
    CHECK(footer.at("exit") == (time_limit && !one.measured ? 16 : 0));
    CHECK(result.exit_code == footer.at("exit"));
    CHECK((footer.at("measured") > 0) == one.measured);
    CHECK(result.err.find("comm") == std::string::npos);
    CHECK_FALSE(has_log(folder, 1));
  }
}

TEST_CASE("a rank that is killed ends all, and is named") {
  NEEDS_GLOO();
  const TemporaryFolder folder;
  sweep::RunSpec spec = spec_of(folder.path(), 3);
  spec.point.steps = kForever;
  StartedTrainer trainer(options_of(spec, 3));
  wait_for_steps(folder);
  ::kill(trainer.rank(2), SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result = trainer.wait();
  CHECK(seconds_since(begin) < 9);  // before the launcher would end them
  CHECK(result.exit_code == 137);
  CHECK(result.err.find("trainer: rank 2: its connection ended\n") != std::string::npos);
  const Json footer = log_of(folder).back();
  CHECK(footer.at("t") == "footer");
  CHECK(footer.at("status") == "comm-error");
  CHECK(footer.at("ended_by") == "comm-error");
  CHECK(footer.at("exit") == 15);
  CHECK(footer.at("reason") == "rank 2: its connection ended");
  CHECK(footer.at("measured") > 0);
  CHECK_FALSE(has_log(folder, 2));
  const std::vector<Json> events = log_of(folder, 1);
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("t") == "event");
  CHECK(events[0].at("rank") == 1);
  CHECK(events[0].at("kind") == "comm-error");
  CHECK(events[0].at("text") == "rank 2: its connection ended");
}

TEST_CASE("the others end when rank 0 is killed, and say so in their logs") {
  NEEDS_GLOO();
  const TemporaryFolder folder;
  sweep::RunSpec spec = spec_of(folder.path(), 3);
  spec.point.steps = kForever;
  StartedTrainer trainer(options_of(spec, 3));
  wait_for_steps(folder);
  ::kill(trainer.rank(0), SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(trainer.wait().exit_code == 137);
  CHECK(seconds_since(begin) < 9);
  CHECK(log_of(folder).back().at("t") == "step");
  for (const int rank : {1, 2}) {
    const std::vector<Json> events = log_of(folder, rank);
    REQUIRE(events.size() == 1);
    CHECK(events[0].at("kind") == "comm-error");
    CHECK(events[0].at("text") == "rank 0: its connection ended");
  }
}

TEST_CASE("a rank that fails by itself tells all why") {
  NEEDS_GLOO();
  const TemporaryFolder folder;
  sweep::RunSpec spec = spec_of(folder.path(), 2);
  spec.point.env["TESSERA_TEST_AXIS"] = "1";
  std::vector<std::unique_ptr<StartedTrainer>> ranks;
  for (const char* rank : {"0", "1"}) {
    const std::string r = rank;
    ranks.push_back(std::make_unique<StartedTrainer>(ProgramOptions{
        .arguments = {"--spec", "-"},
        .input = run_spec_json(spec),
        .environment = {"TESSERA_RANK=" + r, "TESSERA_RANKS=2", "TESSERA_LOCAL_RANK=" + r,
                        "TESSERA_NODE=0", "TESSERA_NODES=1",
                        "TESSERA_TEST_AXIS=" + std::string(r == "0" ? "1" : "2")}}));
  }
  const ProgramResult second = ranks[1]->wait();
  const ProgramResult first = ranks[0]->wait();
  const std::string reason =
      "point.env.TESSERA_TEST_AXIS: is 2 in this process, not 1; start the trainer with it";
  CHECK(second.exit_code == 10);
  CHECK(second.err == "trainer: rank 1: " + reason + "\n");
  CHECK(first.exit_code == 10);
  CHECK(first.err == "trainer: rank 1: " + reason + "\n");
  const Json footer = log_of(folder).back();
  CHECK(footer.at("status") == "start-fail");
  CHECK(footer.at("exit") == 10);
  CHECK(footer.at("reason") == "rank 1: " + reason);
  const std::vector<Json> events = log_of(folder, 1);
  REQUIRE(events.size() == 1);
  CHECK(events[0].at("kind") == "start-fail");
  CHECK(events[0].at("text") == reason);
}

TEST_CASE("ranks with different specifications do not train") {
  NEEDS_GLOO();
  const TemporaryFolder folder;
  sweep::RunSpec spec = spec_of(folder.path(), 2);
  std::vector<std::unique_ptr<StartedTrainer>> ranks;
  for (const char* rank : {"0", "1"}) {
    const std::string r = rank;
    if (r == "1") spec.point.seed = 18;
    ranks.push_back(std::make_unique<StartedTrainer>(ProgramOptions{
        .arguments = {"--spec", "-"},
        .input = run_spec_json(spec),
        .environment = {"TESSERA_RANK=" + r, "TESSERA_RANKS=2", "TESSERA_LOCAL_RANK=" + r,
                        "TESSERA_NODE=0", "TESSERA_NODES=1"}}));
  }
  CHECK(ranks[1]->wait().exit_code == 10);
  CHECK(ranks[0]->wait().exit_code == 10);
  CHECK(log_of(folder).back().at("reason").get<std::string>().find(
            " has another run specification than rank 0; ") != std::string::npos);
}

TEST_CASE("a log that rank 0 cannot write ends all at once") {
  NEEDS_GLOO();
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result = train_on(spec_of("/no/such/folder", 2), 2);
  CHECK(seconds_since(begin) < 9);
  CHECK(result.exit_code == 19);
  CHECK(result.err.find(
            "trainer: /no/such/folder/log.1.0.0.jsonl: the run log cannot be written: ") !=
        std::string::npos);
}

TEST_CASE("a loss that is not finite ends all ranks alike") {
  NEEDS_GLOO();
  const TemporaryFolder folder;
  sweep::RunSpec spec = spec_of(folder.path(), 2);
  spec.point.lr = 1e35;
  spec.point.steps = 50;
  const ProgramResult result = train_on(spec, 2);
  CHECK(result.exit_code == 14);
  const Json footer = log_of(folder).back();
  CHECK(footer.at("status") == "nan");
  CHECK(footer.at("ended_by") == "not-finite");
  CHECK(footer.at("reason").get<std::string>().find(" at step ") != std::string::npos);
  CHECK_FALSE(has_log(folder, 1));
}

TEST_CASE(
    "without its module, or with one that is torn, a trainer of several ranks says what to "
    "install") {
  const TemporaryFolder programs;
  std::filesystem::copy_file(trainer_path(), programs / "trainer");
  for (const bool torn : {false, true}) {
    if (torn) write_file_atomically(programs / "tessera-gloo.so", "ELF");
    const TemporaryFolder folder;
    ProgramOptions options = options_of(spec_of(folder.path(), 2), 2);
    options.program = programs / "trainer";
    const ProgramResult result = run_trainer(options);
    CHECK(result.exit_code == 11);
    CAPTURE(result.err);
    CHECK(result.err.starts_with(
        "trainer: " + std::filesystem::absolute(programs / "tessera-gloo.so").string() + ": "));
    const Json footer = log_of(folder).back();
    CHECK(footer.at("status") == "start-fail");
    CHECK(footer.at("exit") == 11);
    CHECK(footer.at("reason").get<std::string>().find("libgloo-dev") != std::string::npos);
    // A single rank needs no module.
    options = {.arguments = {"--capabilities"}, .program = programs / "trainer"};
    CHECK(Json::parse(run_trainer(options).out).at("max_ranks") == 1);
    const TemporaryFolder alone;
    CHECK(run_trainer({.arguments = {"--spec", "-"},
                       .input = run_spec_json(spec_of(alone.path(), 1)),
                       .program = programs / "trainer"})
              .exit_code == 0);
  }
}
