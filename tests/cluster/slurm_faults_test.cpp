// SPDX-License-Identifier: Apache-2.0
// Slurm in trouble: replies that get lost, limits, daemons and nodes that are down. Programs that
// stand before the real ones do only what those will not do when asked.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "lib/base/command.h"
#include "tests/cluster/slurm_place.h"

using namespace tessera;
using namespace tessera::cluster;
using namespace tessera::test;
using runlog::Status;
using Phase = JobState::Phase;

namespace {

constexpr const char* kTimedOut =
    "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2"
    "\nexit 1";

Submission submit(Contract& contract, const Job& job) {
  return contract.scheduler().submit(job, [](const std::string&) {});
}

// Jobs of this name that Slurm has ever had.
std::size_t jobs_named(const std::string& name) {
  const CommandResult result =
      run_command({"squeue", "--noheader", "--states=all", "--name=" + name, "--format=%i"});
  REQUIRE(result.exit_code == 0);
  return static_cast<std::size_t>(std::ranges::count(result.out, '\n'));
}

// slurm.conf with other settings, as a client's; an empty one is left out.
class OtherConfiguration {
 public:
  using Settings = std::map<std::string, std::string>;
  explicit OtherConfiguration(const Settings& settings)
      : path_(slurm_folder() / fmt::format("slurm-{}.conf", count()++)),
        variable_("SLURM_CONF", path_.string()) {
    std::string text;
    std::istringstream lines(read_file(slurm_state() / "etc/slurm.conf"));
    for (std::string line; std::getline(lines, line);) {
      const auto set = settings.find(line.substr(0, line.find('=')));
      if (set != settings.end()) line = set->second.empty() ? "" : set->first + "=" + set->second;
      text += line + "\n";
    }
    std::ofstream(path_) << text;
  }

 private:
  static int& count() {
    static int value = 0;
    return value;
  }
  std::filesystem::path path_;
  Variable variable_;
};

// Runs `what` and returns the code of its error; ok if there is none.
template <class What>
ExitCode fault_of(const What& what) {
  try {
    what();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::ok;
}

ContractPlace place_of(const Cluster& cluster) {
  ContractPlace place = slurm_place();
  place.make = [cluster](const auto& trainer) { return slurm_on(cluster, trainer); };
  return place;
}

}  // namespace

TEST_CASE("a job that was taken although its reply got lost is found, not handed over twice") {
  Contract contract(slurm_place());
  const FakePrograms fake;
  fake.add("sbatch", fmt::format("/usr/bin/sbatch \"$@\" >/dev/null\n{}", kTimedOut));
  const Job job = contract.job({contract.run("taken", "true")});
  CHECK(submit(contract, job).kind == Submission::Kind::lost);
  const JobState state = contract.ended(contract.open(job, ""));
  CHECK_FALSE(state.job.empty());
  CHECK_FALSE(state.end.has_value());
  CHECK(jobs_named(job.name) == 1);
  CHECK(Contract::count(job.runs.front(), "ran") == 1);
}

TEST_CASE("a job whose handing over got lost on the way is absent") {
  Contract contract(slurm_place());
  const FakePrograms fake;
  fake.add("sbatch", kTimedOut);
  const Job job = contract.job({contract.run("gone", "true")});
  const Submission submission = submit(contract, job);
  CHECK(submission.kind == Submission::Kind::lost);
  CHECK(submission.text.find("Socket timed out") != std::string::npos);
  CHECK(contract.state(contract.open(job, "")).phase == Phase::absent);
}

TEST_CASE("an sbatch that hangs is killed, and what it did is not known") {
  ContractPlace place = slurm_place();
  place.make = [](const auto& trainer) {
    return slurm_scheduler(slurm_test_cluster(),
                           {.trainer = trainer.string(), .command_limit_s = 1});
  };
  Contract contract(place);
  const FakePrograms fake;
  fake.add("sbatch", "sleep 600");
  const double begin_s = monotonic_seconds();
  CHECK(submit(contract, contract.job({contract.run("hanging", "true")})).kind ==
        Submission::Kind::lost);
  CHECK(monotonic_seconds() - begin_s < 20);
}

TEST_CASE("what a site prints before the job's number does no harm") {
  Contract contract(slurm_place());
  const FakePrograms fake;
  fake.add("sbatch",
           "echo 'Welcome! You have used 12 % of your hours.'\necho 'lua: partition set' >&2\n"
           "exec /usr/bin/sbatch \"$@\"");
  contract.ended(contract.submit(contract.job({contract.run("noise", "true")})));
}

TEST_CASE("one job too many is busy and leaves nothing behind, so that it can be tried again") {
  Cluster cluster = slurm_test_cluster();
  cluster.slurm.qos = "tiny";
  Contract contract(place_of(cluster));
  const Job first = contract.job({contract.run("first", kContractWait)});
  const OpenJob open = contract.submit(first);
  const Job second = contract.job({contract.run("second", "true")});
  const Submission submission = submit(contract, second);
  CAPTURE(submission.text);
  CHECK(submission.kind == Submission::Kind::busy);
  CHECK(std::filesystem::is_empty(second.runs.front().run_dir));
  contract.scheduler().cancel({&open, 1});
  contract.ended(open);
  contract.ended(contract.submit(second));
}

TEST_CASE("what Slurm refuses at once") {
  Cluster cluster = slurm_test_cluster();
  cluster.slurm.partition = "nowhere";
  Contract contract(place_of(cluster));
  const Job job = contract.job({contract.run("refused", "true")});
  const Submission submission = submit(contract, job);
  CHECK(submission.kind == Submission::Kind::refused);
  CHECK(submission.text.find("Invalid partition name") != std::string::npos);
  CHECK(contract.state(contract.open(job, "")).phase == Phase::absent);

  // More GPUs than a node has: Slurm keeps what it refused as a job that failed.
  Contract gpus(slurm_place());
  Job many = gpus.job({gpus.run("many-gpus", "true")});
  many.gpu = "h100_80gb";
  many.ranks = 9;
  CHECK(submit(gpus, many).kind == Submission::Kind::refused);
  const JobState state = gpus.state(gpus.open(many, ""));
  CHECK(state.phase == Phase::ended);
  CHECK(state.end == Status::start_fail);
}

TEST_CASE("limits as the controller has them") {
  Cluster cluster = slurm_test_cluster();
  CHECK(slurm_on(cluster, "/bin/true")->limits().max_array_size == 0);
  cluster.array = true;
  const Limits limits = slurm_on(cluster, "/bin/true")->limits();
  CHECK(limits.max_array_size == 1001);
  CHECK(limits.max_jobs == 10000);
}

TEST_CASE("a cluster without accounts: what the queue does not know is absent") {
  const OtherConfiguration none(
      {{"AccountingStorageType", "accounting_storage/none"}, {"AccountingStorageEnforce", ""}});
  Contract contract(slurm_place());
  const Job never = contract.job({contract.run("never", "true")});
  CHECK(contract.state(contract.open(never, "")).phase == Phase::absent);
  const Job job = contract.job({contract.run("failing", "exit 12")});
  const OpenJob open = contract.submit(job);
  CHECK(contract.ended(open).end == Status::oom);  // as its script noted
  std::filesystem::remove(job.runs.front().run_dir / "exit.1.0");
  const JobState state = contract.state(open);
  CHECK(state.end == Status::failed);  // the queue alone has no exit codes
  CHECK_FALSE(state.exit_code.has_value());
}

TEST_CASE("accounts that do not answer: nobody is said to be absent") {
  Contract contract(slurm_place());
  const Job job = contract.job({contract.run("known", "true")});
  const OpenJob open = contract.submit(job);
  contract.ended(open);
  const FakePrograms fake;
  fake.add("sacct",
           "echo 'sacct: error: Problem talking to the database: Connection refused' >&2\nexit 1");
  CHECK(contract.state(open).phase == Phase::ended);
  const OpenJob never = contract.open(contract.job({contract.run("never", "true")}), "");
  CHECK(fault_of([&] { contract.scheduler().query({&never, 1}); }) == ExitCode::unreachable);
}

TEST_CASE("accounts that are late are waited for") {
  Contract contract(slurm_place());
  const Job job = contract.job({contract.run("late", "exit 12")});
  const OpenJob open = contract.submit(job);
  contract.ended(open);
  std::filesystem::remove(job.runs.front().run_dir / "exit.1.0");
  CHECK(contract_wait([&] { return contract.state(open).end == Status::oom; }));
  const FakePrograms fake;
  fake.add("sacct", fmt::format("/usr/bin/sacct \"$@\" | sed 's/|FAILED|12:0|/|RUNNING|0:0|/'"));
  // Still in the queue, as failed: how is not known yet.
  CHECK(contract.state(open).phase == Phase::running);
  // No longer there.
  fake.add("squeue", "exit 0");
  CHECK(contract.state(open).phase == Phase::running);
  // Accounts that know more, without the queue.
  fake.add("sacct", "exec /usr/bin/sacct \"$@\"");
  CHECK(contract.state(open).end == Status::oom);
}

TEST_CASE("accounts that never hear of the end: the job is gone, how it ended is unknown") {
  Cluster cluster = slurm_test_cluster();
  cluster.lookup_s = 0.5;
  Contract contract(place_of(cluster));
  const Job job = contract.job({contract.run("runaway", "true")});
  const OpenJob open = contract.submit(job);
  contract.ended(open);
  const FakePrograms fake;
  fake.add("squeue", "exit 0");
  CHECK(contract_wait([&] { return contract.state(open).phase == Phase::ended; }));
  fake.add("sacct", "/usr/bin/sacct \"$@\" | sed 's/|COMPLETED|/|RUNNING|/'");
  CHECK(contract_wait([&] { return contract.state(open).phase == Phase::ended; }, 20));
  CHECK(contract.state(open).end == Status::unknown);
}

TEST_CASE("commands that are not there") {
  Contract contract(slurm_place());
  const Variable path("PATH", "/nowhere");
  const Job job = contract.job({contract.run("nothing", "true")});
  CHECK(fault_of([&] { submit(contract, job); }) == ExitCode::unreachable);
  CHECK(std::filesystem::is_empty(job.runs.front().run_dir));
  CHECK(fault_of([&] { contract.scheduler().limits(); }) == ExitCode::unreachable);
}

TEST_CASE("what a cluster file asks and is not acted on is refused") {
  const auto of = [](const std::function<void(Cluster&)>& ask) {
    Cluster cluster = slurm_test_cluster();
    ask(cluster);
    return fault_of([&] { slurm_on(cluster, "/bin/true"); });
  };
  CHECK(of([](Cluster& cluster) { cluster.fetch = "rsync"; }) == ExitCode::refused);
  CHECK(of([](Cluster& cluster) { cluster.pretest = {"gemm"}; }) == ExitCode::refused);
  CHECK(of([](Cluster& cluster) { cluster.name_pattern = "{project}--x-{id}"; }) ==
        ExitCode::refused);
  CHECK(of([](Cluster& cluster) { cluster.name_pattern = "{project}--{slug}-{id}"; }) ==
        ExitCode::ok);
}

TEST_CASE("a node that goes down takes its job with it [root]") {
  Cluster cluster = slurm_test_cluster();
  cluster.slurm.exclude.clear();
  cluster.slurm.nodelist = "node04";
  Contract contract(place_of(cluster));
  const Job job = contract.job({contract.run("node-down", kContractWait)});
  const OpenJob open = contract.submit(job);
  contract.begun(job.runs.front());
  const auto node = [](const char* state) {
    return run_command({"scontrol", "update", "nodename=node04", std::string("state=") + state,
                        "reason=test"})
        .exit_code;
  };
  CHECK(node("down") == 0);
  const JobState state = contract.ended(open);
  CHECK(state.end == Status::node_fail);
  CHECK(state.end_reason.find("node04") != std::string::npos);
  CHECK(node("idle") == 0);
}

TEST_CASE("a controller that is down cannot be asked, and knows all again afterwards [alone]") {
  Contract contract(slurm_place());
  const Job job = contract.job({contract.run("through", kContractWait)});
  const OpenJob open = contract.submit(job);
  contract.begun(job.runs.front());
  REQUIRE(run_command({slurm_control(), "halt", "slurmctld"}).exit_code == 0);
  const Job other = contract.job({contract.run("other", "true")});
  {
    // Clients that give up soon.
    const OtherConfiguration soon(OtherConfiguration::Settings{{"MessageTimeout", "2"}});
    CHECK(fault_of([&] { contract.state(open); }) == ExitCode::unreachable);
    CHECK(fault_of([&] { contract.scheduler().cancel({&open, 1}); }) == ExitCode::unreachable);
    CHECK(fault_of([&] { contract.scheduler().limits(); }) == ExitCode::unreachable);
    CHECK(fault_of([&] { contract.scheduler().check(other); }) == ExitCode::unreachable);
    CHECK(fault_of([&] { submit(contract, other); }) == ExitCode::unreachable);
    CHECK(std::filesystem::is_empty(other.runs.front().run_dir));
  }
  REQUIRE(run_command({slurm_control(), "resume", "slurmctld"}).exit_code == 0);
  CHECK(contract.state(open).phase == Phase::running);
  contract.ended(contract.submit(other));
  contract.scheduler().cancel({&open, 1});
  CHECK(contract.ended(open).end == Status::cancelled);
}
