// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/text.h"

#include <doctest/doctest.h>

#include "lib/base/error.h"
#include "lib/cluster/slurm/state.h"

using namespace tessera;
using namespace tessera::cluster;
using runlog::Status;
using Reply = Submission::Kind;
using Phase = JobState::Phase;

namespace {

CommandResult failed(const std::string& err, int exit_code = 1) {
  return {.exit_code = exit_code, .err = err};
}

// Printed by Slurm 22.05.8.
constexpr const char* kSqueue =
    R"(9|FAILED|BadConstraints|1796002614|1796002614|0:00|root||s.sh
18|FAILED|NonZeroExitCode|1796002614|1796002614|0:00|root|node01|wrap
21|FAILED|JobLaunchFailure|1796002614|1796002614|0:01|root|node01|s.sh
35|NODE_FAIL|NodeDown|1796002793|1796002793|0:02|root|node04|nodefail
37|DEADLINE|DeadLine|1796002793|1796002843|0:00|root||dead
29|TIMEOUT|TimeLimit|1796002793|1796002793|1:28|root|node01|quote
1|CANCELLED|None|1796002573|1796002573|0:03|root|node[01-02]|canc
2|COMPLETED|None|1796002580|1796002580|0:03|root|node[01-02]|die
7|PENDING|PartitionNodeLimit|1796002614|N/A|0:00|root||s.sh
16|PENDING|BeginTime|1796002614|1796006214|0:00|root||s.sh
17|PENDING|JobHeldUser|1796002614|N/A|0:00|root||s.sh
19|PENDING|DependencyNeverSatisfied|1796002614|N/A|0:00|root||s.sh
22_2|RUNNING|None|1796002610|1796002614|0:02|root|node01|s.sh
34|RUNNING|None|1796002793|1796002793|0:03|root|node01|a|b c
)";

constexpr const char* kSacct =
    R"(1|CANCELLED by 0|0:0|1796002573|1796002573|1796002576|00:00:03|root|node[01-02]|canc
7|PENDING|0:0|1796002614|Unknown|Unknown|00:00:00|root|None assigned|s.sh
9|FAILED|1:0|1796002614|1796002614|1796002614|00:00:00|root|None assigned|s.sh
21|FAILED|0:53|1796002614|1796002614|1796002615|00:00:01|root|node01|s.sh
22_1|COMPLETED|0:0|1796002614|1796002614|1796002646|00:00:32|root|node01|s.sh
29|TIMEOUT|0:0|1796002793|1796002793|1796002881|00:01:28|root|node01|quote
30|FAILED|0:9|1796002793|1796002793|1796002815|00:00:22|root|node01|mem
31|FAILED|7:0|1796002793|1796002793|1796002793|00:00:00|root|node01|oddexit
32|FAILED|0:11|1796002793|1796002793|1796002793|00:00:00|root|node01|sig
34|COMPLETED|0:0|1796002793|1796002793|1796002893|00:01:40|root|node01|a|b c
35|NODE_FAIL|0:0|1796002793|1796002793|1796002795|00:00:02|root|node04|nodefail
37|DEADLINE|1:0|1796002793|None|1796002843|00:00:00|root|None assigned|dead
)";

const SlurmRecord& of(const std::vector<SlurmRecord>& records, const std::string& id) {
  for (const SlurmRecord& record : records) {
    if (record.id == id) return record;
  }
  FAIL("no record ", id);
  return records.front();
}

JobState in_queue(const std::string& id) {
  static const std::vector<SlurmRecord> records = parse_squeue(kSqueue);
  return slurm_state(&of(records, id), nullptr);
}

JobState in_accounts(const std::string& id) {
  static const std::vector<SlurmRecord> records = parse_sacct(kSacct);
  return slurm_state(nullptr, &of(records, id));
}

JobState ended_as(const std::string& state, const std::string& exit) {
  const auto records = parse_sacct("5|" + state + "|" + exit +
                                   "|1796002600|1796002610|1796002620|00:00:10|kim|n1|job");
  REQUIRE(records.size() == 1);
  return slurm_state(nullptr, &records.front());
}

}  // namespace

TEST_CASE("sbatch's reply names the job, whatever stands around it") {
  for (const char* out : {"18231\n", "18231;dev\n", "Welcome to the cluster!\n18231\n",
                          "You have 12 hours left\n\n18231;dev\n", "18231", "18231\r\n"}) {
    CAPTURE(out);
    const Submission submission = parse_sbatch({.out = out, .err = ""});
    CHECK(submission.kind == Reply::accepted);
    CHECK(submission.job == "18231");
  }
  const Submission warned =
      parse_sbatch({.out = "7\n", .err = "sbatch: warning: the default memory is small\n"});
  CHECK(warned.kind == Reply::accepted);
  CHECK(warned.text == "warning: the default memory is small");
}

TEST_CASE("success without a job's number is no answer that can be trusted") {
  for (const char* out : {"", "Submitted\n", "12 hours left\n", "job 12\n", "12x\n"}) {
    CAPTURE(out);
    CHECK(parse_sbatch({.out = out}).kind == Reply::lost);
  }
}

TEST_CASE("what the controller refused") {
  // Printed by Slurm 22.05.8.
  const std::pair<const char*, const char*> said[] = {
      {"sbatch: error: invalid partition specified: nope\n"
       "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
       "Batch job submission failed: Invalid partition name specified"},
      {"sbatch: error: Batch job submission failed: Requested node configuration is not "
       "available\n",
       "Batch job submission failed: Requested node configuration is not available"},
      {"sbatch: error: Batch job submission failed: Invalid job array specification\n",
       "Batch job submission failed: Invalid job array specification"},
      {"sbatch: error: Memory specification can not be satisfied\n"
       "sbatch: error: Batch job submission failed: Requested node configuration is not "
       "available\n",
       "Batch job submission failed: Requested node configuration is not available"},
      {"sbatch: error: Unable to open file /no/script\n", "Unable to open file /no/script"},
      {"sbatch: error: QOSMaxWallDurationPerJobLimit\n"
       "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
       "limit, user's size and/or time limits)\n",
       "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's "
       "size and/or time limits): QOSMaxWallDurationPerJobLimit"}};
  for (const auto& [err, text] : said) {
    const Submission submission = parse_sbatch(failed(err));
    CHECK(submission.kind == Reply::refused);
    CHECK(submission.text == text);
    CHECK(submission.job.empty());
  }
}

TEST_CASE("what may be tried again") {
  for (
      const char* err :
      {"sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
       "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
       "limit, user's size and/or time limits)\n",
       "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job "
       "violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n",
       "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
       "limit, user's size and/or time limits)\n",
       "sbatch: error: Batch job submission failed: Resource temporarily unavailable\n",
       "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
       "sbatch: error: Batch job submission failed: Unable to create job record, try again\n",
       "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode\n"}) {
    CAPTURE(err);
    CHECK(parse_sbatch(failed(err)).kind == Reply::busy);
  }
}

TEST_CASE("what the controller may have taken all the same is lost") {
  for (const char* err :
       {"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive "
        "failure)\n",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n"
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"}) {
    CAPTURE(err);
    CHECK(parse_sbatch(failed(err)).kind == Reply::lost);
  }
  CHECK(parse_sbatch(failed("", 1)).kind == Reply::lost);
  CHECK(parse_sbatch(failed("", 137)).kind == Reply::lost);
  CHECK(parse_sbatch(failed("sbatch: error: something\n", 139)).kind == Reply::lost);
  CHECK(parse_sbatch({.exit_code = 137, .out = "17\n", .timed_out = true}).kind == Reply::lost);
}

TEST_CASE("a controller that nothing has reached") {
  for (const CommandResult& result :
       {failed("sbatch: error: Batch job submission failed: Unable to contact slurm controller "
               "(connect failure)\n"),
        failed("sbatch: error: s_p_parse_file: cannot stat file /nope/slurm.conf: No such file or "
               "directory, retrying in 1sec up to 60sec\nsbatch: error: ClusterName needs to be "
               "specified\nsbatch: fatal: Unable to process configuration file\n"),
        failed("sbatch: error: Batch job submission failed: Protocol authentication error\n"),
        failed("sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
               "sbatch: error: fetch_config: DNS SRV lookup failed\n"
               "sbatch: error: _establish_config_source: failed to fetch config\n"
               "sbatch: fatal: Could not establish a configuration source\n"),
        failed("", 127)}) {
    CAPTURE(result.err);
    try {
      parse_sbatch(result);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::unreachable);
    }
  }
  CHECK(slurm_fault(failed("slurm_load_jobs error: Unable to contact slurm controller (connect "
                           "failure)\n")) == SlurmFault::unreachable);
}

TEST_CASE("a command without a configuration says that, not which look-up failed") {
  CHECK(slurm_complaint(
            failed("sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
                   "sbatch: error: fetch_config: DNS SRV lookup failed\n"
                   "sbatch: fatal: Could not establish a configuration source\n")) ==
        "Could not establish a configuration source");
}

TEST_CASE("accounts that are not kept are another thing than those that do not answer") {
  CHECK(slurm_fault(failed("Slurm accounting storage is disabled\n")) == SlurmFault::no_accounting);
  CHECK(
      slurm_fault(failed("sacct: error: slurm_persist_conn_open_without_init: failed to open "
                         "persistent connection to host:localhost:6819: Connection refused\n"
                         "sacct: error: Problem talking to the database: Connection refused\n")) ==
      SlurmFault::unreachable);
}

TEST_CASE("lines of squeue and sacct, odd names, and lines that are none") {
  const auto queue =
      parse_squeue("Have a nice day\n\n" + std::string(kSqueue) + "1|2|3\n|||||||||\n");
  CHECK(queue.size() == 14);
  CHECK(of(queue, "34").name == "a|b c");
  CHECK(of(queue, "22_2").submit_s == 1796002610);
  CHECK(of(queue, "22_2").nodes == "node01");
  CHECK_FALSE(of(queue, "7").start_s.has_value());
  const auto accounts = parse_sacct(kSacct);
  CHECK(accounts.size() == 12);
  CHECK(of(accounts, "1").state == "CANCELLED");
  CHECK(of(accounts, "1").by == "0");
  CHECK(of(accounts, "7").nodes.empty());
  CHECK(of(accounts, "34").name == "a|b c");
  CHECK(of(accounts, "30").exit_signal == 9);
  // Steps, parts of heterogeneous jobs, times of a version that does not know %s.
  CHECK(parse_sacct("1.batch|COMPLETED|0:0|1|1|1|0|u|n|x\n1+0|COMPLETED|0:0|1|1|1|0|u|n|x\n")
            .empty());
  const auto old = parse_squeue("3|RUNNING|None|2026-11-29T12:00:00|N/A|0:00|kim|n1|x\n");
  REQUIRE(old.size() == 1);
  CHECK_FALSE(old.front().submit_s.has_value());
  CHECK(parse_sacct("5|CANCELLED+|0:0|1|1|1|0|u|n|x\n").front().state == "CANCELLED");
}

TEST_CASE("states of jobs that have not ended") {
  CHECK(in_queue("22_2").phase == Phase::running);
  CHECK(in_queue("22_2").job == "22_2");
  CHECK(in_queue("22_2").reason == "node01");
  CHECK(in_queue("22_2").queue_s == 4);
  CHECK(in_queue("16").phase == Phase::pending);
  CHECK(in_queue("16").reason == "BeginTime");
  CHECK_FALSE(in_queue("16").never_starts);
  CHECK_FALSE(in_queue("16").queue_s.has_value());
  for (const auto& [id, reason] : {std::pair("7", "PartitionNodeLimit"),
                                   {"17", "JobHeldUser"},
                                   {"19", "DependencyNeverSatisfied"}}) {
    CHECK(in_queue(id).phase == Phase::pending);
    CHECK(in_queue(id).never_starts);
    CHECK(in_queue(id).reason == reason);
  }
  const auto held = parse_squeue("3|REQUEUE_HOLD|None|1|N/A|0:00|kim||x\n");
  CHECK(slurm_state(&held.front(), nullptr).never_starts);
  const auto completing = parse_squeue("3|COMPLETING|None|1|2|0:01|kim|n1|x\n");
  CHECK(slurm_state(&completing.front(), nullptr).phase == Phase::running);
}

TEST_CASE("how a job ended, each word") {
  CHECK(in_queue("2").phase == Phase::ended);
  CHECK_FALSE(in_queue("2").end.has_value());
  CHECK(in_queue("2").exit_code == 0);
  CHECK(in_accounts("29").end == Status::timeout);
  CHECK(in_accounts("29").end_reason == "TIMEOUT after 00:01:28");
  CHECK_FALSE(in_accounts("29").exit_code.has_value());  // the 0:0 of a time-out means nothing
  CHECK(in_queue("29").end == Status::timeout);
  CHECK(in_accounts("35").end == Status::node_fail);
  CHECK(in_queue("35").end_reason == "NODE_FAIL after 0:02 on node04");
  CHECK(in_accounts("37").end == Status::timeout);
  CHECK(in_accounts("1").end == Status::cancelled);
  CHECK(in_accounts("1").end_reason == "CANCELLED by user 0");
  CHECK(in_accounts("9").end == Status::start_fail);
  CHECK(in_queue("9").end == Status::start_fail);
  CHECK(in_accounts("21").end == Status::start_fail);
  CHECK(in_accounts("21").end_reason.find("output file cannot be written") != std::string::npos);
  CHECK(in_accounts("31").end == Status::failed);
  CHECK(in_accounts("31").exit_code == 7);
  CHECK(in_accounts("30").exit_code == 137);
  CHECK(in_accounts("32").exit_code == 139);
  CHECK(ended_as("PREEMPTED", "0:0").end == Status::preempted);
  CHECK(ended_as("BOOT_FAIL", "0:0").end == Status::node_fail);
  CHECK(ended_as("OUT_OF_MEMORY", "0:125").end == Status::host_oom);
  CHECK(ended_as("LAUNCH_FAILED", "0:0").end == Status::start_fail);
  CHECK(ended_as("FAILED", "12:0").end == Status::oom);
  CHECK(ended_as("FAILED", "13:0").end == Status::host_oom);
  CHECK(ended_as("FAILED", "19:0").end == Status::start_fail);
  CHECK(ended_as("FAILED", "127:0").end == Status::start_fail);
  CHECK(ended_as("FAILED", "127:0").end_reason ==
        "exit code 127: the trainer is not there: submit doctor says where it is wanted");
  CHECK(ended_as("FAILED", "12:0").queue_s == 10);
}

TEST_CASE("the queue says that it failed, the accounts with which code") {
  const auto queue = parse_squeue(kSqueue);
  const auto accounts = parse_sacct(kSacct);
  CHECK(slurm_state(&of(queue, "21"), nullptr).end == Status::failed);
  CHECK(slurm_state(&of(queue, "21"), &of(accounts, "21")).end == Status::start_fail);
  CHECK(slurm_state(&of(queue, "1"), &of(accounts, "1")).end_reason == "CANCELLED by user 0");
  // Accounts that are late.
  const auto late =
      parse_sacct("21|RUNNING|0:0|1796002614|1796002614|Unknown|00:00:01|root|n|s.sh");
  CHECK(slurm_state(&of(queue, "21"), &late.front()).phase == Phase::ended);
}

TEST_CASE("a word that nobody knows is kept, never taken for an end or a success") {
  const JobState gone = ended_as("VANISHED", "0:0");
  CHECK(gone.phase == Phase::ended);
  CHECK(gone.end == Status::unknown);
  CHECK(gone.end_reason == "unknown(VANISHED)");
  const auto records = parse_squeue("3|LEVITATING|None|1|2|0:01|kim|n1|x\n");
  CHECK(slurm_state(&records.front(), nullptr).phase == Phase::running);
  CHECK(slurm_state(&records.front(), nullptr).reason == "unknown(LEVITATING)");
}

TEST_CASE("reasons for which waiting does not help, and others") {
  for (const char* reason :
       {"PartitionNodeLimit", "PartitionTimeLimit", "DependencyNeverSatisfied", "BadConstraints",
        "JobHeldAdmin", "JobHeldUser", "QOSMaxWallDurationPerJobLimit", "QOSMaxNodePerJobLimit",
        "AssocMaxCpuPerJobLimit", "QOSMinGRES", "AssocGrpCPUMinutesLimit", "InvalidQOS"}) {
    CAPTURE(reason);
    CHECK(slurm_never_starts(reason));
  }
  for (const char* reason :
       {"Priority", "Resources", "Dependency", "BeginTime", "None", "", "ReqNodeNotAvail",
        "QOSMaxJobsPerUserLimit", "QOSGrpNodeLimit", "AssocGrpCpuLimit", "AssocMaxJobsLimit",
        "AssocGrpCPURunMinutesLimit", "JobArrayTaskLimit", "PartitionDown", "Licenses"}) {
    CAPTURE(reason);
    CHECK_FALSE(slurm_never_starts(reason));
  }
}

TEST_CASE("Slurm's words for a job that took too much memory") {
  CHECK(
      says_over_memory("slurmstepd-node01: error: StepId=30.batch exceeded memory limit (608202752 "
                       "> 52428800), being killed\n"));
  CHECK(
      says_over_memory("slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the "
                       "step tasks have been OOM Killed.\n"));
  CHECK_FALSE(says_over_memory("step 12 loss 10.2 memory 3 GiB\n"));
}

TEST_CASE("settings of the controller") {
  const char* config =
      "Configuration data as of 2026-11-30T01:36:54\nMaxArraySize            = 1001\n"
      "MaxJobCount             = 10000\nKillWait                = 5 sec\nNone = (null)\n";
  CHECK(slurm_setting(config, "MaxArraySize") == 1001);
  CHECK(slurm_setting(config, "KillWait") == 5);
  CHECK_FALSE(slurm_setting(config, "None").has_value());
  CHECK_FALSE(slurm_setting(config, "Max").has_value());
  CHECK(slurm_text_setting(config, "KillWait") == "5 sec");
  CHECK(slurm_text_setting(config, "None").empty());
  CHECK(slurm_text_setting(config, "Max").empty());
}
