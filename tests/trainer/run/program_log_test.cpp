// SPDX-License-Identifier: Apache-2.0
// The log that the program leaves of a run: its records, what they say, and where they go.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/file.h"
#include "lib/runlog/footer.h"
#include "tests/temporary.h"
#include "tests/trainer/run/program.h"

using namespace tessera;
using namespace tessera::trainer::test;
using tessera::test::TemporaryFolder;
using Json = nlohmann::ordered_json;

namespace {

std::vector<std::string> kinds(const std::vector<Json>& records) {
  std::vector<std::string> result;
  for (const Json& record : records) {
    const auto kind = record.at("t").get<std::string>();
    if (kind != "software" || result.empty() || result.back() != kind) result.push_back(kind);
  }
  return result;
}

}  // namespace

TEST_CASE("a run writes every record, in order, and a footer that says all of them") {
  const TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.shared_with = 2;
  spec.peak.reset();
  const ProgramResult result = train_spec(spec);
  CHECK(result.err == "");
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("ok: ") != std::string::npos);

  const auto path = log_in(folder.path());
  CHECK(path.filename() == "log.1.0.0.jsonl");
  const std::vector<Json> records = records_of(read_file(path));
  CHECK(kinds(records) ==
        std::vector<std::string>{"header", "model", "effective", "host", "software", "plan", "peak",
                                 "step", "step", "step", "step", "step", "step", "row", "footer"});
  runlog::Facts facts;
  for (std::size_t i = 0; i < records.size(); ++i) {
    CHECK(records[i].at("n") == i);
    CHECK(records[i].at("id") == spec.id);
    runlog::absorb(facts, records[i]);
  }
  const Json& footer = records.back();
  CHECK(row_of(records) == runlog::row_json(facts));
  CHECK(footer.at("status") == "ok");
  CHECK(footer.at("ended_by") == "completed");
  CHECK(footer.at("exit") == 0);
  CHECK(footer.at("warmup") == 2);
  CHECK(footer.at("measured") == 4);
  CHECK(footer.at("tokens") == 4 * 5 * 16);
  CHECK(footer.at("token_basis") == "full");
  CHECK(footer.at("mem_peak_bytes") > 1000000);
  CHECK(footer.at("flops_executed_per_token") > 0);
  double seconds = 0;
  for (const Json& record : records) {
    if (record.at("t") != "step") continue;
    CHECK(record.at("loss") > 3);
    CHECK(record.at("grad_norm") > 0);
    CHECK(record.at("warmup") == (record.at("step") <= 2));
    if (!record.at("warmup")) seconds += record.at("seconds").get<double>();
  }
  CHECK(footer.at("measured_s") == doctest::Approx(seconds));

  // The record says what ran, not what was asked for.
  const Json& effective = records[2];
  CHECK(effective.at("sharding_strategy") == "NO_SHARD");
  CHECK(effective.at("attention") == "flash");
  CHECK(effective.at("microbatch_size") == 2);
  CHECK(effective.at("accum") == 3);
  CHECK(effective.at("threads") == 1);
  CHECK(effective.at("shared_with") == 2);
  CHECK(effective.at("emulated") == false);
  CHECK(records[1].at("n_params") == model::parameter_count(spec.point.model, 16));
  CHECK(facts.peak_source->starts_with("measured: f32 GEMM, 1 thread"));
  CHECK(*facts.peak_tflops > 0);
  CHECK(facts.gemm_measured_tflops == facts.peak_tflops);
  CHECK(facts.planned_bytes == facts.allocated_bytes);
}

TEST_CASE("a run that shares its CPU says what share of it it got") {
  if (!std::filesystem::exists("/proc/self/schedstat")) return;
  const TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.point.steps = 3000;
  spec.peak.reset();
  // The trainer shares one CPU with a process that only spins. Each is bound once it is a process
  // of its own: clang's OpenMP gives a fork the CPUs that its parent began with.
  cpu_set_t all;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &all)) --last;
  const pid_t spinning = ::fork();
  if (spinning == 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    for (const volatile bool forever = true; forever;) {
    }
  }
  const ProgramResult result = run_trainer(
      {.arguments = {"-c", std::to_string(last), trainer_path().string(), "--spec", "-"},
       .input = run_spec_json(spec),
       .program = "/usr/bin/taskset"});
  ::kill(spinning, SIGKILL);
  ::waitpid(spinning, nullptr, 0);
  CHECK(result.exit_code == 0);
  const std::vector<Json> records = records_of(read_file(log_in(folder.path())));
  const Json& footer = records.back();
  CHECK(footer.at("cpu_share") > 0.01);
  CHECK(footer.at("cpu_share") < 0.8);
  CHECK(result.out.find("its threads waited for a CPU ") != std::string::npos);
  CHECK(row_of(records).at("peak_disturbed") == "other-work");
}

TEST_CASE("a microbatch over the batch becomes the batch, bf16 on a CPU is marked emulated") {
  const TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.point.microbatch_size = 64;
  spec.point.precision = Precision::amp_bf16;
  spec.point.activation_checkpointing = Checkpointing::full;
  CHECK(train_spec(spec).exit_code == 0);
  const std::vector<Json> records = records_of(read_file(log_in(folder.path())));
  CHECK(records[2].at("microbatch_size") == 5);
  CHECK(records[2].at("accum") == 1);
  CHECK(records[2].at("emulated") == true);
  CHECK(records[2].at("recompute") == "full");
  CHECK_FALSE(row_of(records).contains("gemm_measured_tflops"));
  CHECK(row_of(records).at("peak_source") == "measured: elsewhere");
}

TEST_CASE("--profile, or the specification, profiles steps behind the measured ones") {
  for (const bool by_flag : {true, false}) {
    const TemporaryFolder folder;
    sweep::RunSpec spec = small_spec(folder.path());
    spec.profile = !by_flag;
    std::vector<std::string> arguments{"--spec", "-"};
    if (by_flag) arguments.emplace_back("--profile");
    const ProgramResult result =
        run_trainer({.arguments = arguments, .input = run_spec_json(spec)});
    CHECK(result.exit_code == 0);
    CHECK(result.err == "");
    CHECK(result.out.find("Profile of 3 steps after the measured ones") != std::string::npos);
    const std::vector<Json> records = records_of(read_file(log_in(folder.path())));
    int steps = 0;
    int operations = 0;
    double seconds = 0;
    for (const Json& record : records) {
      if (record.at("t") == "step") ++steps;
      if (record.at("t") != "profile") continue;
      CHECK(steps == 6);
      for (const Json& operation : record.at("operations")) {
        ++operations;
        seconds += operation.at("seconds").get<double>();
      }
      CHECK(seconds <= record.at("step_s"));
    }
    CHECK(steps == 6);
    CHECK(operations > 10);
    const Json& footer = records.back();
    CHECK(footer.at("status") == "ok");
    CHECK(footer.at("warmup") == 2);
    CHECK(footer.at("measured") == 4);
    double shares = 0;
    for (const auto& [name, share] : footer.at("budget").items()) shares += share.get<double>();
    CHECK(footer.at("budget").size() == 7);
    CHECK(shares == doctest::Approx(1).epsilon(0.001));
    runlog::Facts facts;
    for (const Json& record : records) runlog::absorb(facts, record);
    CHECK(row_of(records) == runlog::row_json(facts));
  }
  const ProgramResult wrong = run_trainer({.arguments = {"--profile", "--capabilities"}});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err ==
        "trainer: --profile: does not go with trainer capabilities; leave it out; trainer "
        "capabilities --help lists what does\n");
}

TEST_CASE("a run without --profile has none, and an end before the last step neither") {
  const TemporaryFolder folder;
  CHECK(train_spec(small_spec(folder.path())).exit_code == 0);
  CHECK_FALSE(records_of(read_file(log_in(folder.path()))).back().contains("budget"));
  const TemporaryFolder other;
  sweep::RunSpec spec = small_spec(other.path());
  spec.profile = true;
  spec.point.lr = 1e35;
  spec.point.steps = 50;
  CHECK(train_spec(spec).exit_code == 14);
  CHECK_FALSE(records_of(read_file(log_in(other.path()))).back().contains("budget"));
}

TEST_CASE("an attempt is never overwritten") {
  const TemporaryFolder folder;
  write_file_atomically(folder / "log.1.0.0.jsonl", "mine\n");
  CHECK(train_spec(small_spec(folder.path())).exit_code == 0);
  CHECK(read_file(folder / "log.1.0.0.jsonl") == "mine\n");
  const std::vector<Json> records = records_of(read_file(folder / "log.2.0.0.jsonl"));
  CHECK(records.back().at("try") == 2);
}

TEST_CASE("a log that cannot be written is told, with the path") {
  const ProgramResult missing = train_spec(small_spec("/no/such/folder"));
  CHECK(missing.exit_code == 19);
  CHECK(missing.err.find("/no/such/folder/log.1.0.0.jsonl: the run log cannot be written") !=
        std::string::npos);

  const TemporaryFolder folder;
  const std::string small = (folder / "full").string();
  std::filesystem::create_directory(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=12k") != 0) {
    MESSAGE("not root, or no tmpfs here: full and read-only file systems are not tried");
    return;
  }
  sweep::RunSpec spec = small_spec(small);
  spec.point.steps = 1000;
  const ProgramResult full = train_spec(spec);
  CHECK(full.exit_code == 19);
  CHECK(full.err.find("log.1.0.0.jsonl: the run log cannot be written: ") != std::string::npos);
  CHECK(::mount("tmpfs", small.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=12k") == 0);
  spec.attempt = 2;
  const ProgramResult read_only = train_spec(spec);
  CHECK(read_only.exit_code == 19);
  CHECK(read_only.err.find("Read-only file system") != std::string::npos);
  CHECK(::umount(small.c_str()) == 0);
}

TEST_CASE("only a few thousand steps get a record, all count") {
  const TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.point.steps = 30;
  spec.log_every = 7;
  CHECK(train_spec(spec).exit_code == 0);
  const std::vector<Json> records = records_of(read_file(log_in(folder.path())));
  std::set<int> steps;
  for (const Json& record : records)
    if (record.at("t") == "step") steps.insert(record.at("step").get<int>());
  CHECK(steps == std::set<int>{7, 14, 21, 28});
  CHECK(records.back().at("measured") == 28);
}

TEST_CASE("the software record holds what the allow-list names and nothing else") {
  const ProgramResult result =
      run_trainer({.arguments = {"--spec", "-"},
                   .input = run_spec_json(small_spec("")),
                   .environment = {"NCCL_PROTO=LL128", "SLURM_JOB_ID=7", "SLURM_JWT=secret",
                                   "AWS_SECRET_ACCESS_KEY=secret", "TESSERA_IMAGE=sha256:abc",
                                   "NCCL_LONG=" + std::string(6000, 'x')}});
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("secret") == std::string::npos);
  Json environment;
  for (const Json& record : records_of(result.out)) {
    if (record.at("t") != "software") continue;
    if (record.contains("env")) environment.update(record.at("env"));
    if (record.at("part") == 1) {
      CHECK(record.at("image") == "sha256:abc");
      CHECK(record.at("trainer").is_string());
      CHECK(record.at("blas").get<std::string>().find("OpenBLAS") == 0);
    }
  }
  CHECK(environment.at("NCCL_PROTO") == "LL128");
  CHECK(environment.at("SLURM_JOB_ID") == "7");
  CHECK(environment.at("NCCL_LONG").get<std::string>().size() == 1000);
}

TEST_CASE("a decoder of another family trains, and its records say its shape") {
  const TemporaryFolder folder;
  sweep::RunSpec spec = small_spec(folder.path());
  spec.point.model.norm = model::Norm::rmsnorm;
  spec.point.model.norm_eps = 1e-6;
  spec.point.model.positions = model::Positions::rope;
  spec.point.model.rope_theta = 500000;
  spec.point.model.activation = model::Activation::swiglu;
  spec.point.model.biases = {.qkv = true, .out = false, .mlp = false, .norm = false};
  spec.point.model.n_kv_heads = 1;
  spec.point.model.tied = false;
  spec.point.activation_checkpointing = Checkpointing::full;
  const ProgramResult result = train_spec(spec);
  CHECK(result.err == "");
  CHECK(result.exit_code == 0);
  const std::vector<Json> records = records_of(read_file(log_in(folder.path())));
  runlog::Facts facts;
  for (const Json& record : records) runlog::absorb(facts, record);
  CHECK(runlog::shape_of(facts) == spec.point.model);
  CHECK(records.back().at("status") == "ok");
}
