// SPDX-License-Identifier: Apache-2.0
// A cluster in memory that answers as it is told: for what a real one does not do on demand.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/cluster/scheduler.h"

namespace tessera::test {

using Phase = cluster::JobState::Phase;

class FakeScheduler final : public cluster::Scheduler {
 public:
  struct Known {
    cluster::Job job;
    cluster::JobState state;
    std::size_t element = 0;  // of an array
  };

  FakeScheduler() {
    cluster_.name = "fake";
    cluster_.kind = cluster::Kind::slurm;
    cluster_.gpus = {{.name = "cpu", .per_node = 1}};
    cluster_.lookup_s = 0.05;
  }

  cluster::Cluster& file() { return cluster_; }
  const cluster::Cluster& cluster() const override { return cluster_; }

  cluster::Submission submit(const cluster::Job& job, const Accepted& accepted) override {
    ++hand_overs;
    if (on_hand_over) on_hand_over();
    if (unreachable) throw Error(ExitCode::unreachable, "fake", "does not answer");
    cluster::Submission answer;
    if (!answers.empty()) {
      answer = answers.front();
      answers.pop_front();
    }
    const bool has_it = answer.kind == cluster::Submission::Kind::accepted ||
                        (answer.kind == cluster::Submission::Kind::lost && answer.text == "has it");
    if (has_it) {
      const std::string id = std::to_string(++last_id);
      for (std::size_t i = 0; i < (job.array ? job.runs.size() : 1); ++i) {
        Known& known = jobs[job.array ? cluster::element_id(id, i) : id];
        known = {.job = job, .state = {}, .element = i};
        known.state.phase = Phase::pending;
      }
      answer.job = id;
    }
    for (const cluster::RunStart& run : job.runs) {
      make_directories(run.run_dir);
      write_file_atomically(run.run_dir / ("run." + std::to_string(run.attempt) + ".json"),
                            run.spec_json + "\n");
    }
    if (before_accepted) before_accepted();
    if (answer.kind == cluster::Submission::Kind::accepted) accepted(answer.job);
    if (after_accepted) after_accepted();
    return answer;
  }

  std::map<std::filesystem::path, std::string> render(const cluster::Job&) const override {
    return {};
  }
  std::string check(const cluster::Job& job) override {
    checked.push_back(job);
    return "fine";
  }
  cluster::NodeReport probe(const cluster::NodeQuestion& question) override {
    return on_probe(question);
  }
  cluster::SiteReport examine_site(
      const std::function<void(const std::string&)>& /*waiting*/) override {
    return on_examine ? on_examine() : cluster::SiteReport{};
  }

  std::vector<cluster::JobState> query(std::span<const cluster::OpenJob> open) override {
    ++queries;
    if (on_query) on_query();
    if (unreachable) throw Error(ExitCode::unreachable, "fake", "does not answer");
    std::vector<cluster::JobState> states;
    for (const cluster::OpenJob& job : open) {
      cluster::JobState state;
      for (const auto& [id, known] : jobs) {
        const bool is_it = job.job.empty() ? known.job.name == job.name : id == job.job;
        if (!is_it || hidden > 0) continue;
        state = known.state;
        state.job = known.job.array ? id.substr(0, id.find('_')) : id;
      }
      states.push_back(state);
    }
    hidden = std::max(0, hidden - 1);
    return states;
  }

  void cancel(std::span<const cluster::OpenJob> open) override {
    for (const cluster::OpenJob& job : open) cancelled.push_back(job.job);
  }
  std::vector<std::filesystem::path> outputs(const cluster::OpenRun& run) const override {
    const std::string attempt = std::to_string(run.attempt);
    return {run.run_dir / ("job." + attempt + ".out"), run.run_dir / ("out." + attempt + ".0.0")};
  }
  cluster::Limits limits() override { return {.max_array_size = 4, .max_jobs = 0}; }
  double poll_s() const override { return 0.002; }
  bool queues() const override { return true; }

  // Jobs of this name that the cluster ever took.
  int taken(const std::string& name) const {
    return static_cast<int>(std::ranges::count_if(
        jobs, [&](const auto& each) { return each.second.job.name == name; }));
  }

  std::map<std::string, Known> jobs;        // by id
  std::deque<cluster::Submission> answers;  // to the next hand-overs; then accepted
  std::vector<cluster::Job> checked;
  std::vector<std::string> cancelled;
  bool unreachable = false;
  int hidden = 0;  // so many queries know nothing yet
  int hand_overs = 0;
  int queries = 0;
  int last_id = 100;
  std::function<void()> on_query;
  std::function<cluster::NodeReport(const cluster::NodeQuestion&)> on_probe;
  std::function<cluster::SiteReport()> on_examine;
  // In a hand-over: before the cluster has the job, when it has it, when its id is known.
  std::function<void()> on_hand_over, before_accepted, after_accepted;

 private:
  cluster::Cluster cluster_;
};

}  // namespace tessera::test
