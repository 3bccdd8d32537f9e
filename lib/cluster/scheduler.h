// SPDX-License-Identifier: Apache-2.0
// Where jobs run: this machine or Slurm; slurmrestd and Kubernetes fit without a change here.
// submit, status, cancel, logs, doctor and collect know nothing else of a cluster, but for what
// backend.h says before one is asked.
//
// A job is one thing that the cluster starts and names: one allocation of one shape. Its runs are
// one; or several that follow each other in the allocation (pack), one that fails not ending the
// rest; or the elements of an array, each an allocation of its own. Which run ended how is in the
// runs' own logs: the cluster is asked for what those cannot tell.
//
// All implementations pass the tests of tests/lib/cluster/scheduler_contract.h.
// Threads: one caller at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/cluster/cluster_file.h"
#include "lib/cluster/finding.h"
#include "lib/runlog/record.h"

namespace tessera::cluster {

// One attempt of a run.
struct RunStart {
  std::string run;
  int attempt = 1;
  std::filesystem::path run_dir;
  std::string spec_json;                   // becomes run.<attempt>.json, which must not exist
  std::map<std::string, std::string> env;  // set for the trainer
  std::vector<std::string> unset;          // not to be in its environment, whoever set it
};

struct Job {
  std::string name;     // never used before: the job name of its first run's attempt
  std::string project;  // for the cluster's own notes
  std::vector<RunStart> runs;
  bool array = false;              // its runs are elements; else they follow each other
  std::string gpu;                 // an entry of the cluster file's gpus
  std::int64_t ranks = 1;          // of each run, one a GPU
  std::int64_t nodes = 1;          // of each run
  std::int64_t threads = 0;        // of each rank; 0: as the cluster has them for it
  std::int64_t time_limit_s = 0;   // of the allocation; 0: the cluster's own
  std::vector<std::string> after;  // ids of jobs that must have ended, however, before it begins
};

// What came of handing a job over.
struct Submission {
  enum class Kind : std::uint8_t {
    accepted,
    refused,  // the cluster has not got it, and would not take it if asked again
    busy,     // it has not got it: too many jobs, or overloaded; may be tried again
    lost,     // no answer that can be trusted: it may have it. Look its name up before all else
  };
  Kind kind = Kind::accepted;
  std::string job;   // of accepted: its id. Array element i is element_id(job, i)
  std::string text;  // what the cluster said, one line
};

std::string element_id(const std::string& array_job, std::size_t index);

// An attempt that the ledger does not know the end of.
struct OpenRun {
  std::string run;
  int attempt = 1;
  std::filesystem::path run_dir;
};

// A job with open runs, as the ledger has it. An array's element is a job here.
struct OpenJob {
  std::string job;        // id; empty: never confirmed, found by its name
  std::string name;       // of an array's element: the array's
  std::string host;       // from which it was handed over
  std::string since_utc;  // when it was handed over: how far back accounts are to be searched
  std::vector<OpenRun> runs;
};

struct JobState {
  enum class Phase : std::uint8_t {
    pending,
    running,
    ended,
    absent,     // the cluster knows no such job: never did, or no more
    elsewhere,  // cannot be known from this machine: `reason` says where it can
  };
  Phase phase = Phase::absent;
  std::string job;  // the id under which it was found; of an array looked up by name: the array's
  // pending: why it waits, in the cluster's word (PartitionTimeLimit); running: where
  std::string reason;
  bool never_starts = false;  // pending, and waiting will not help: `reason` says why
  // ended: how, as far as the cluster can tell: never `ok`, since only a footer says so. Nothing:
  // it ended without a fault
  std::optional<runlog::Status> end;
  std::string end_reason;  // "TIMEOUT after 00:10:00", "exit code 127: the trainer is not there"
  std::optional<int> exit_code;   // of the job as a whole, if known; 128 + n: by signal n
  std::optional<double> queue_s;  // from hand-over to begin, by the cluster's one clock
};

// A question to a node: `look` sends it.
struct NodeQuestion {
  std::string name;  // of the job; never used before
  std::string gpu;   // an entry of the cluster file's gpus; one device of it is asked for
  // In the workspace; there, and empty. Question and answer go through it; its caller removes it.
  std::filesystem::path folder;
  // Called again and again until the answer is there; false ends the job.
  std::function<bool(const JobState&)> goes_on;
};

// What a node answered, having read a file that this machine wrote into `folder`.
struct NodeReport {
  std::string node;
  std::vector<std::string> devices;  // what the driver there calls them; empty: no nvidia-smi
  std::string version;               // the line of `trainer --version`
  std::string capabilities;          // the JSON of `trainer --capabilities`
  std::string trainer_fault;         // one line; the two above are empty then
  std::optional<double> queue_s;
};

// The cluster file against what the site has and allows.
struct SiteReport {
  std::vector<Finding> findings;
  // Nodes among those that jobs of this file would go to: down, drained, in maintenance.
  std::int64_t nodes_out_of_service = 0;
};

struct Limits {
  std::size_t max_array_size = 0;  // elements of an array; 0: no arrays
  std::size_t max_jobs = 0;        // of this user at once, pending too; 0: not known
};

class Scheduler {
 public:
  Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  virtual ~Scheduler() = default;

  virtual const Cluster& cluster() const = 0;

  // Writes what the run folders need (made if they are not there; run.<attempt>.json, the script),
  // hands the job over and calls `accepted` with its id before anything else can go wrong: where
  // the cluster allows it, before the job begins. If `accepted` throws, the error goes on; the job
  // is then found by its name. Error(io) or Error(conflict) about files, Error(unreachable) if the
  // cluster cannot be asked at all: then it has not got the job.
  using Accepted = std::function<void(const std::string& job)>;
  virtual Submission submit(const Job& job, const Accepted& accepted) = 0;

  // The files that submit would write, by path, and nothing else done.
  virtual std::map<std::filesystem::path, std::string> render(const Job& job) const = 0;

  // Whether the cluster would take the job, asked without handing it over: what it said, one line.
  // Error(refused) with what it said if it would not; Error(unreachable).
  virtual std::string check(const Job& job) = 0;

  // What a run of the GPU would find: starts the trainer on a node, as runs are started, only to
  // ask what it can. Error(refused) if the cluster takes no such job, Error(interrupted) if the
  // caller gave up, Error(io) if no answer came back through the folder; Error(unreachable).
  virtual NodeReport probe(const NodeQuestion& question) = 0;

  // Asks the site what it has, starting nothing there. `waiting` is told what it waits for, before
  // it waits. Empty where there is nothing to ask; Error(unreachable).
  virtual SiteReport examine_site(const std::function<void(const std::string&)>& waiting) = 0;

  // The states of all, in the same order, with a number of calls that does not grow with theirs.
  // A job is believed only if its name and its user fit, for ids are used again.
  // Error(unreachable): nothing is known then.
  virtual std::vector<JobState> query(std::span<const OpenJob> jobs) = 0;

  // Tells them to end, by id; those that have ended are passed over. They get a moment to write
  // their footers. Error(unreachable, refused).
  virtual void cancel(std::span<const OpenJob> jobs) = 0;

  // What a run printed for people, in the order in which it is to be read; may be empty.
  virtual std::vector<std::filesystem::path> outputs(const OpenRun& run) const = 0;

  virtual Limits limits() = 0;
  // Seconds between two questions that the cluster does not mind.
  virtual double poll_s() const = 0;
  // Whether it keeps jobs that it cannot start yet; else submit hands them over one after the other
  // and stays until they have ended.
  virtual bool queues() const = 0;
};

}  // namespace tessera::cluster
