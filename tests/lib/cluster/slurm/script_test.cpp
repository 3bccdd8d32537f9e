// SPDX-License-Identifier: Apache-2.0
// Batch scripts as text (tests/data/slurm holds whole ones; TESSERA_WRITE_GOLDEN=1 writes them
// anew) and as programs: with a stand-in for srun that notes what it was given.
#include "lib/cluster/slurm/script.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::cluster;
namespace fs = std::filesystem;

namespace {

Cluster h100s() {
  Cluster cluster;
  cluster.name = "hgx";
  cluster.source = "hgx.yaml";
  cluster.kind = cluster::Kind::slurm;
  cluster.gpus = {{.name = "h100_80gb",
                   .per_node = 8,
                   .request = "gres",
                   .gres = "gpu:h100",
                   .constraint = "hgx"},
                  {.name = "cpu"}};
  cluster.trainer.path = "/shared/bench/bin/tessera-trainer";
  cluster.slurm = {.partition = "gpu", .mem = "0", .cpus_per_gpu = 12};
  return cluster;
}

Job one_run() {
  return {.name = "mpt--7b-s2048-16g-1f0c9a3b77de",
          .project = "mpt",
          .runs = {{.run = "mpt--7b-s2048-16g-1f0c9a3b77de",
                    .run_dir = "/shared/runs/mpt/mpt--7b-s2048-16g-1f0c9a3b77de",
                    .spec_json = R"({"schema":1,"run":"mpt--7b-s2048-16g-1f0c9a3b77de"})"}},
          .gpu = "h100_80gb",
          .ranks = 16,
          .nodes = 2,
          .time_limit_s = 3600};
}

Job three_runs() {
  Job job = one_run();
  job.ranks = 8;
  job.nodes = 1;
  job.runs.clear();
  for (const char* id : {"1f0c9a3b77de", "2f0c9a3b77de", "3f0c9a3b77de"}) {
    const std::string run = std::string("mpt--7b-s2048-8g-") + id;
    job.runs.push_back({.run = run,
                        .attempt = 2,
                        .run_dir = "/shared/runs/mpt/" + run,
                        .spec_json = R"({"schema":1,"run":")" + run + "\"}",
                        .env = {{"NCCL_PROTO", "LL128"}},
                        .unset = {"NCCL_ALGO"}});
  }
  job.name = job.runs.front().run + "-a2";
  return job;
}

std::string script_of(const Cluster& cluster, const Job& job,
                      const SlurmScriptOptions& options = {}) {
  const std::string text = slurm_script(cluster, job, options);
  const CommandResult syntax = run_command({"bash", "-n", "/dev/stdin"}, {.input = text});
  CAPTURE(text);
  CHECK(syntax.err.empty());
  CHECK(syntax.exit_code == 0);
  return text;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

void check_golden(const std::string& name, const std::string& text) {
  const fs::path path = fs::path("tests/data/slurm") / name;
  if (std::getenv("TESSERA_WRITE_GOLDEN") != nullptr) write_file_atomically(path, text);
  CHECK(read_file(path) == text);
}

std::string refusal(const Cluster& cluster, const Job& job) {
  try {
    slurm_script(cluster, job, {});
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::refused);
    return error.what();
  }
  return "no error";
}

// Runs a script on this machine, with a srun that runs the program once, as rank 0.
class OnThisMachine {
 public:
  OnThisMachine() {
    fs::create_directories(folder_ / "bin");
    program("bin/srun", R"(for word; do
  case $word in
    --output=*) out=${word#--output=}; out=${out%??}0 ;;
    --*) printf '%s\n' "$word" >>"$SRUN_NOTES" ;;
    *) break ;;
  esac
  shift
done
exec "$@" >>"$out" 2>&1
)");
    program("trainer", R"(printf '%s' "$TESSERA_SPEC" >spec
env -0 >env
[ ! -e behaviour ] || . ./behaviour
)");
  }

  void program(const std::string& name, const std::string& body) const {
    std::ofstream(folder_ / name) << "#!/bin/bash\n" << body;
    fs::permissions(folder_ / name, fs::perms::owner_all);
  }

  Cluster cluster() const {
    Cluster result;
    result.name = "here";
    result.gpus = {{.name = "cpu"}};
    result.trainer.path = (folder_ / "trainer").string();
    return result;
  }

  RunStart run(const std::string& name) const {
    fs::create_directories(folder_ / name);
    return {.run = name, .run_dir = folder_ / name, .spec_json = "{}"};
  }

  CommandResult start(const Cluster& cluster, const Job& job,
                      const std::vector<std::string>& more = {}) const {
    std::vector<std::string> variables{"PATH=" + (folder_ / "bin").string() + ":/usr/bin:/bin",
                                       "SRUN_NOTES=" + (folder_ / "srun").string()};
    variables.insert(variables.end(), more.begin(), more.end());
    return run_command({"bash", "/dev/stdin"},
                       {.environment = variables, .input = script_of(cluster, job)});
  }

  std::string read(const std::string& name) const {
    return read_file_if_exists(folder_ / name).value_or("(missing)");
  }
  bool has_variable(const std::string& run, const std::string& variable) const {
    const std::string all = std::string(1, '\0') + read(run + "/env");
    return all.find(std::string(1, '\0') + variable + std::string(1, '\0')) != std::string::npos;
  }
  const test::TemporaryFolder& folder() const { return folder_; }

 private:
  test::TemporaryFolder folder_;
};

Job here(std::vector<RunStart> runs) {
  return {.name = "job", .project = "p", .runs = std::move(runs), .gpu = "cpu"};
}

}  // namespace

TEST_CASE("whole scripts, as they are handed over") {
  check_golden("one.sh", script_of(h100s(), one_run()));
  check_golden("packed.sh", script_of(h100s(), three_runs()));
  Job array = three_runs();
  array.array = true;
  check_golden("array.sh", script_of(h100s(), array));

  Cluster cluster = h100s();
  cluster.slurm = {.partition = "gpu",
                   .account = "acc",
                   .qos = "bench",
                   .reservation = "night",
                   .nodelist = "n[01-64]",
                   .exclude = {"n17", "n18"},
                   .exclusive = true,
                   .mem = "900G",
                   .cpus_per_gpu = 12,
                   .bind = "numa",
                   .extra = {"--switches=1", "--mail-type=END"},
                   .prologue = "ulimit -l unlimited\nsource /shared/env.sh"};
  cluster.trainer.image = "reg.example#bench/tessera@sha256:12ab";
  cluster.trainer.path = "tessera-trainer";
  cluster.trainer.mounts = {"/shared", "/local:/scratch:ro"};
  cluster.trainer.modules = {"cuda/13.0", "nccl"};
  cluster.env = {{"NCCL_IB_HCA", "mlx5"}, {"NOTE", "it's \"$HOME\""}};
  Job job = one_run();
  job.after = {"18231", "18240_3"};
  check_golden("everything.sh", script_of(cluster, job, {.bin = "/opt/slurm/bin"}));
}

TEST_CASE("GPUs are asked for as the cluster file says") {
  Cluster cluster = h100s();
  const Job job = one_run();
  CHECK(has_line(script_of(cluster, job), "#SBATCH --gres=gpu:h100:8"));
  cluster.gpus[0].gres.clear();
  cluster.gpus[0].request.clear();
  CHECK(has_line(script_of(cluster, job), "#SBATCH --gres=gpu:8"));
  cluster.gpus[0].request = "gpus-per-node";
  CHECK(has_line(script_of(cluster, job), "#SBATCH --gpus-per-node=8"));
  cluster.gpus[0].gres = "gpu:h100";
  CHECK(has_line(script_of(cluster, job), "#SBATCH --gpus-per-node=h100:8"));
  cluster.gpus[0].request = "none";
  CHECK(script_of(cluster, job).find("gpu:") == std::string::npos);
  Job cpu = one_run();
  cpu.gpu = "cpu";
  cpu.threads = 4;
  const std::string text = script_of(cluster, cpu);
  CHECK(text.find("gpu:") == std::string::npos);
  CHECK(has_line(text, "#SBATCH --cpus-per-task=4"));
  CHECK(text.find(" --cpus-per-task=4 ") != std::string::npos);  // srun's own
  cpu.threads = 0;
  CHECK(has_line(script_of(cluster, cpu), "#SBATCH --cpus-per-task=12"));
}

TEST_CASE("time limits and the warning before them") {
  CHECK(slurm_time(60) == "00:01:00");
  CHECK(slurm_time(4 * 3600 + 61) == "04:01:01");
  CHECK(slurm_time(2 * 86400 + 5) == "2-00:00:05");
  CHECK(slurm_warning_s(60) == 15);
  CHECK(slurm_warning_s(600) == 60);
  CHECK(slurm_warning_s(86400) == 120);
  Job job = one_run();
  job.time_limit_s = 0;
  CHECK(script_of(h100s(), job).find("--time") == std::string::npos);
  CHECK(has_line(script_of(h100s(), job), "#SBATCH --signal=USR1@120"));
}

TEST_CASE("what Slurm cannot be told is refused") {
  Job job = one_run();
  job.ranks = 15;
  CHECK(refusal(h100s(), job).find("15 ranks do not spread evenly over 2 nodes") !=
        std::string::npos);
  job = one_run();
  job.gpu = "b200";
  CHECK(refusal(h100s(), job).find("has no 'b200'") != std::string::npos);
  job = one_run();
  job.runs.front().run_dir = "/shared/a\\b";
  CHECK(refusal(h100s(), job).find("backslash") != std::string::npos);
  Cluster cluster = h100s();
  cluster.slurm.extra = {"--mail-type=END\nrm -rf /"};
  CHECK(refusal(cluster, one_run()).find("more than one line") != std::string::npos);
  cluster = h100s();
  cluster.slurm.account = "a\nb";
  CHECK(refusal(cluster, one_run()).find("--account has more than one line") != std::string::npos);
  cluster = h100s();
  cluster.trainer.path.clear();
  CHECK_THROWS_AS(slurm_script(cluster, one_run(), {}), Error);
}

TEST_CASE("odd values reach #SBATCH quoted, so that no later line is lost") {
  Cluster cluster = h100s();
  cluster.slurm.account = "a b #c";
  cluster.slurm.qos = R"(q"x\y)";
  const std::string text = script_of(cluster, one_run());
  CHECK(has_line(text, "#SBATCH --account=\"a b #c\""));
  CHECK(has_line(text, R"(#SBATCH --qos="q\"x\\y")"));
  Job job = one_run();
  job.runs.front().run_dir = "/shared/100% %j";
  CHECK(has_line(script_of(h100s(), job), "#SBATCH --output=\"/shared/100%% %%j/script.1.out\""));
}

TEST_CASE("a run gets its specification and environment byte by byte") {
  const OnThisMachine machine;
  const std::string odd = "it's \"$HOME\" `id` $(id) \\n !x\n second line * é";
  RunStart run = machine.run("odd 100% 'x' $y");
  run.spec_json = "{\"a\": \"" + odd + "\"}\nEND_OF_SPECIFICATION\n}";
  run.env = {{"ODD", odd}, {"EMPTY", ""}, {"A_B", "1"}};
  run.unset = {"GONE"};
  Cluster cluster = machine.cluster();
  cluster.env = {{"OF_CLUSTER", odd}, {"GONE", "never"}, {"A_B", "2"}};
  const CommandResult result = machine.start(cluster, here({run}), {"SLURM_JWT=secret"});
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(machine.read(run.run + "/spec") == run.spec_json + "\n");
  CHECK(machine.has_variable(run.run, "ODD=" + odd));
  CHECK(machine.has_variable(run.run, "OF_CLUSTER=" + odd));
  CHECK(machine.has_variable(run.run, "EMPTY="));
  CHECK(machine.has_variable(run.run, "A_B=1"));
  CHECK_FALSE(machine.has_variable(run.run, "GONE=never"));
  CHECK_FALSE(machine.has_variable(run.run, "SLURM_JWT=secret"));
  CHECK(machine.read(run.run + "/exit.1.0") == "0\n");
}

TEST_CASE("runs of one job follow each other, and one that fails does not end the rest") {
  const OnThisMachine machine;
  Job job = here({machine.run("a"), machine.run("b"), machine.run("c")});
  std::ofstream(machine.folder() / "a/behaviour") << "echo of a; exit 12\n";
  const CommandResult result = machine.start(machine.cluster(), job, {"SLURM_RESTART_COUNT=3"});
  CHECK(result.exit_code == 9);
  CHECK(machine.read("a/exit.1.3") == "12\n");
  CHECK(machine.read("a/out.1.3.0") == "of a\n");
  CHECK(machine.read("b/exit.1.3") == "0\n");
  CHECK(machine.read("c/exit.1.3") == "0\n");
}

TEST_CASE("a signal that ends a trainer is 128 and its number, and one that reaches its task too") {
  const OnThisMachine machine;
  const Job job = here({machine.run("a"), machine.run("b"), machine.run("c")});
  std::ofstream(machine.folder() / "a/behaviour") << "kill -SEGV $$\n";
  std::ofstream(machine.folder() / "b/behaviour") << "kill -KILL $$\n";
  // Slurm signals all processes of a task: it outlives them to tell the trainer's end.
  std::ofstream(machine.folder() / "c/behaviour")
      << "trap 'exit 3' TERM; kill -TERM $PPID $$; kill -USR1 $PPID; sleep 1\n";
  CHECK(machine.start(machine.cluster(), job).exit_code == 9);
  CHECK(machine.read("a/exit.1.0") == "139\n");
  CHECK(machine.read("b/exit.1.0") == "137\n");
  CHECK(machine.read("c/exit.1.0") == "3\n");
  CHECK(machine.read("a/.failed.1.0") == "(missing)");
}

TEST_CASE("a folder that is gone costs its run alone and is told") {
  const OnThisMachine machine;
  Job job = here({machine.run("a"), machine.run("b"), machine.run("c")});
  fs::remove(machine.folder() / "b");
  const CommandResult result = machine.start(machine.cluster(), job);
  CHECK(result.exit_code == 9);
  CHECK(result.err.find("b/script.1.out: No such file or directory") != std::string::npos);
  CHECK(machine.read("c/exit.1.0") == "0\n");
  Job alone = here({machine.run("d")});
  fs::remove(machine.folder() / "d");
  const CommandResult single = machine.start(machine.cluster(), alone);
  CHECK(single.exit_code == 19);
  CHECK(single.out.find("d: the run's folder is not there on ") != std::string::npos);
}

TEST_CASE("a trainer that is not there is exit code 127 and is told") {
  const OnThisMachine machine;
  Cluster cluster = machine.cluster();
  cluster.trainer.path = "/no/such trainer";
  const CommandResult result = machine.start(cluster, here({machine.run("a")}));
  CHECK(result.exit_code == 127);
  CHECK(result.out.find("/no/such trainer is not there") != std::string::npos);
  CHECK(machine.read("a/exit.1.0") == "127\n");
}

TEST_CASE("a script that is started again takes the attempt that its trainer takes") {
  const OnThisMachine machine;
  const Job job = here({machine.run("a")});
  std::ofstream(machine.folder() / "a/log.1.0.0.jsonl") << "";
  std::ofstream(machine.folder() / "a/log.2.0.0.jsonl") << "";
  CHECK(machine.start(machine.cluster(), job).exit_code == 0);
  CHECK(machine.read("a/exit.3.0") == "0\n");
  CHECK(machine.read("a/exit.1.0") == "(missing)");
  CHECK(machine.read("a/out.3.0.0") != "(missing)");
}

TEST_CASE("near the time limit, and when it is told to end, a job begins no further run") {
  const OnThisMachine machine;
  Job job = here({machine.run("a"), machine.run("b")});
  std::ofstream(machine.folder() / "a/behaviour")
      << R"(echo '{"t":"footer","status":"partial","ended_by":"time-limit","reason":"any words","crc":"0"}' >log.1.0.0.jsonl)";
  CHECK(machine.start(machine.cluster(), job).exit_code == 0);
  CHECK(machine.read("b/exit.1.0") == "(missing)");
  CHECK(machine.read("b/script.1.out").find("not begun: the time limit is near") !=
        std::string::npos);

  // A minute is over before a second run could be warned.
  Job short_job = here({machine.run("c"), machine.run("d")});
  short_job.time_limit_s = 60;
  std::ofstream(machine.folder() / "c/behaviour") << "sleep 1.1\n";
  CHECK(machine.start(machine.cluster(), short_job).exit_code == 0);
  CHECK(machine.read("c/exit.1.0") == "0\n");
  CHECK(machine.read("d/exit.1.0") == "(missing)");

  Job cancelled = here({machine.run("e"), machine.run("f")});
  // Its script gets the signal: the trainer's parent is the task, which srun started, which the
  // script did.
  std::ofstream(machine.folder() / "e/behaviour")
      << "kill -TERM $(cut -d' ' -f4 /proc/$PPID/stat); sleep 0.2\n";
  CHECK(machine.start(machine.cluster(), cancelled).exit_code == 0);
  CHECK(machine.read("e/exit.1.0") == "0\n");
  CHECK(machine.read("f/exit.1.0") == "(missing)");
  CHECK(machine.read("f/script.1.out").find("not begun: it was told to end") != std::string::npos);
}

TEST_CASE("an array's element runs its own run alone") {
  const OnThisMachine machine;
  Job job = here({machine.run("a"), machine.run("b")});
  job.array = true;
  CHECK(machine.start(machine.cluster(), job, {"SLURM_ARRAY_TASK_ID=1"}).exit_code == 0);
  CHECK(machine.read("a/exit.1.0") == "(missing)");
  CHECK(machine.read("b/exit.1.0") == "0\n");
  CHECK(machine.read("b/script.1.out").empty());
}
