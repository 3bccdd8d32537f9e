// The program as a user and a scheduler meet it: logs, signals, exit codes.
#include "tests/trainer/train/program.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <set>

#include "lib/base/file.h"
#include "lib/runlog/footer.h"
#include "tests/temporary.h"

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
  CHECK(kinds(records) == std::vector<std::string>{"header", "model", "effective", "host",
                                                   "software", "plan", "peak", "step", "step",
                                                   "step", "step", "step", "step", "footer"});
  runlog::Facts facts;
  for (std::size_t i = 0; i < records.size(); ++i) {
    CHECK(records[i].at("n") == i);
    CHECK(records[i].at("id") == spec.id);
    runlog::absorb(facts, records[i]);
  }
  const Json& footer = records.back();
  CHECK(footer.at("row") == runlog::row_json(facts));
  CHECK(footer.at("status") == "ok");
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

  // What ran, not what was asked for.
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
  // One CPU for the trainer and for a process that only spins.
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
    if (CPU_COUNT(&one) == 0 && CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  const pid_t spinning = ::fork();
  if (spinning == 0) {
    for (const volatile bool forever = true; forever;) {
    }
  }
  const ProgramResult result = train_spec(spec);
  ::kill(spinning, SIGKILL);
  ::waitpid(spinning, nullptr, 0);
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(result.exit_code == 0);
  const Json footer = records_of(read_file(log_in(folder.path()))).back();
  CHECK(footer.at("cpu_share") > 0.01);
  CHECK(footer.at("cpu_share") < 0.8);
  CHECK(result.out.find("its threads waited for a CPU ") != std::string::npos);
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
  const Json& footer = records.back();
  CHECK_FALSE(footer.at("row").contains("gemm_measured_tflops"));
  CHECK(footer.at("row").at("peak_source") == "measured: elsewhere");
}

TEST_CASE("without a run directory the records go to stdout, people's lines to stderr") {
  const ProgramResult result = train_spec(small_spec(""));
  CHECK(result.exit_code == 0);
  CHECK(records_of(result.out).back().at("status") == "ok");
  CHECK(result.err.find("ok: ") != std::string::npos);
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
  CHECK(refused({"--no-such-flag"}) == "trainer: --no-such-flag: is no flag; --help lists them\n");
  CHECK(refused({"--threads", "2"}) ==
        "trainer: --threads: goes with --measure-peak and --bench-ops; the run specification says "
        "a run's threads\n");
  CHECK(refused({"--json"}) == "trainer: --json: goes with --bench-ops\n");
  CHECK(refused({"--bench-ops", "--measure-peak"}) ==
        "trainer: --measure-peak: does not go with --bench-ops; one at a time\n");
  CHECK(refused({"--bench-ops", "--profile"}) ==
        "trainer: --profile: does not go with --bench-ops; one at a time\n");
  CHECK(refused({"--bench-ops", "--threads", "0"}).find("--threads: ") != std::string::npos);
  CHECK(refused({"--spec", ""}) == "trainer: --spec: is empty\n");
  CHECK(refused({"--spec", "a", "--spec", "b"}) ==
        "trainer: --spec: is given twice; give it once\n");
}

TEST_CASE("SIGTERM and SIGINT end a run after the microbatch, with a true footer") {
  for (const int signal : {SIGTERM, SIGINT}) {
    const TemporaryFolder folder;
    sweep::RunSpec spec = small_spec(folder.path());
    spec.point.steps = 900000;
    const ProgramResult result = run_trainer(
        {.arguments = {"--spec", "-"}, .input = run_spec_json(spec), .signal = signal, .when = [&] {
           // Some step records are there.
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
    CHECK(footer.at("row") == runlog::row_json(facts));
  }
  const ProgramResult wrong = run_trainer({.arguments = {"--profile", "--capabilities"}});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err == "trainer: --profile: does not go with --capabilities; one at a time\n");
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
  CHECK(footer.at("exit") == 14);
  CHECK(footer.at("reason").get<std::string>().find(" at step ") != std::string::npos);
  CHECK(footer.at("steps_skipped") == 1);
  CHECK(records.size() < 20);
  for (const Json& record : records) {
    for (const char* key : {"loss", "grad_norm"})
      if (record.contains(key)) CHECK(record.at(key).is_number());
  }
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

TEST_CASE("what the trainer can do and what the machine reaches are JSON") {
  const ProgramResult can = run_trainer({.arguments = {"--capabilities"}});
  CHECK(can.exit_code == 0);
  const Json json = Json::parse(can.out);
  CHECK(json.at("devices") == Json::array({"cpu"}));
  CHECK(json.at("precisions") == Json::array({"fp32", "amp_bf16"}));
  CHECK(json.at("log_schema") == 1);
  CHECK(json.at("operations").size() >= 17);
  for (const char* key : {"cpu", "blas"}) CHECK(json.at(key).is_string());
  // Whatever the library knows of this CPU, it runs kernels of its vector width.
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
  for (const char* question :
       {"--capabilities", "--measure-peak", "--bench-ops", "--print-schedule"})
    refused({"--nproc", "2", question}, std::string("--nproc: does not go with ") + question);
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
