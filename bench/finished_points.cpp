// SPDX-License-Identifier: Apache-2.0
// What a second submit of a large, finished sweep takes: finished_points [POINTS [FOLDER]] makes a
// project of that many finished points (default 10,000), as a submit leaves it, for this machine
// and for Slurm; then times `submit --RUN` of the same sweep, `submit status` and `collect`.
//
// The projects are made by the submission itself, on a scheduler whose jobs end at once. The first
// point of each shape is really trained; the log of each other one holds the same measurements
// under its own names and identity. In place of Slurm's commands are some that fail and write down
// that they were called. FOLDER must not be there, and is kept; without one all is in a folder that
// is deleted.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "apps/submit/cli/plan_flags.h"
#include "apps/submit/loop/submit.h"
#include "apps/submit/plan/make_plan.h"
#include "apps/submit/plan/plan.h"
#include "lib/base/clock.h"
#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/point/run_spec.h"
#include "lib/runlog/footer.h"
#include "lib/runlog/writer.h"
#include "lib/sweep/expand.h"

namespace {

using namespace tessera;
namespace fs = std::filesystem;
using runlog::Json;

constexpr std::int64_t kPoints = 10000;
constexpr std::int64_t kShapes = 4 * 5;  // of the sweep files below
constexpr int kRounds = 5;
constexpr const char* kSlurmPrograms[] = {"sbatch",   "squeue", "sacct",
                                          "scontrol", "sinfo",  "scancel"};

// CPU time of all programs that were run and have ended.
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Scratch {
 public:
  explicit Scratch(const std::string& kept) : folder_(kept), is_kept_(!kept.empty()) {
    if (is_kept_) {
      if (fs::exists(folder_)) throw Error(ExitCode::usage, kept, "is there already");
      make_directories(folder_);
      folder_ = fs::absolute(folder_);
      return;
    }
    std::string pattern = (fs::temp_directory_path() / "finished-points-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw_errno(pattern, "cannot be made", errno);
    folder_ = pattern;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    if (!is_kept_) fs::remove_all(folder_, ignored);
  }
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
  bool is_kept_;
};

// Records of a real run, as their own members.
using Template = std::vector<std::pair<runlog::Kind, Json>>;

Template template_of(const fs::path& log) {
  Template records;
  std::istringstream lines(read_file(log));
  for (std::string line; std::getline(lines, line);) {
    Json record = Json::parse(line);
    const auto kind = from_text<runlog::Kind>(record.at("t").get<std::string>());
    for (const char* common : {"tessera", "t", "project", "run", "id", "rep", "try", "restart",
                               "rank", "n", "utc", "mono_s", "crc"})
      record.erase(common);
    records.emplace_back(kind.value(), std::move(record));
  }
  return records;
}

void write_log(const Template& records, const sweep::RunSpec& spec, const std::string& job) {
  runlog::Writer log = runlog::Writer::to_folder(spec.run_dir, {.project = spec.project,
                                                                .run = spec.run,
                                                                .id = spec.id,
                                                                .repeat = spec.repeat,
                                                                .attempt = spec.attempt});
  for (const auto& [kind, members] : records) {
    Json record = members;
    if (kind == runlog::Kind::header) {
      record["job"] = job;
      record["point"] = Json::parse(sweep::point_json(spec.point));
    }
    if (kind == runlog::Kind::effective) record["seed"] = spec.point.seed;
    if (kind == runlog::Kind::footer) {
      Json whole = members;
      whole["t"] = "footer";
      log.end(runlog::parse_footer(whole).value());
    } else if (kind != runlog::Kind::row) {  // a row is written anew with the footer
      log.write(kind, record);
    }
  }
}

// The scheduler of a cluster file whose jobs have all run when they are accepted.
class Instant final : public cluster::Scheduler {
 public:
  Instant(cluster::Cluster cluster, fs::path trainer)
      : cluster_(std::move(cluster)), trainer_(std::move(trainer)) {}

  const cluster::Cluster& cluster() const override { return cluster_; }

  cluster::Submission submit(const cluster::Job& job, const Accepted& accepted) override {
    const std::string id = std::to_string(++last_id_);
    for (const cluster::RunStart& run : job.runs) {
      make_directories(run.run_dir);
      const fs::path path = run.run_dir / fmt::format("run.{}.json", run.attempt);
      std::ofstream(path) << run.spec_json << "\n";
      const sweep::RunSpec spec = sweep::parse_run_spec(run.spec_json, path.string());
      sweep::Point shape = spec.point;
      shape.seed = 0;
      const auto [found, is_new] = templates_.try_emplace(sweep::canonical_json(shape));
      if (is_new) {
        found->second = train(spec, path);
      } else {
        write_log(found->second, spec, id);
      }
    }
    accepted(id);
    return {.kind = cluster::Submission::Kind::accepted, .job = id, .text = {}};
  }

  std::vector<cluster::JobState> query(std::span<const cluster::OpenJob> jobs) override {
    std::vector<cluster::JobState> states;
    for (const cluster::OpenJob& job : jobs)
      states.push_back({.phase = cluster::JobState::Phase::ended, .job = job.job});
    return states;
  }

  std::map<fs::path, std::string> render(const cluster::Job& /*job*/) const override { return {}; }
  std::string check(const cluster::Job& /*job*/) override { return {}; }
  cluster::NodeReport probe(const cluster::NodeQuestion& /*question*/) override { return {}; }
  cluster::SiteReport examine_site(
      const std::function<void(const std::string&)>& /*waiting*/) override {
    return {};
  }
  void cancel(std::span<const cluster::OpenJob> /*jobs*/) override {}
  std::vector<fs::path> outputs(const cluster::OpenRun& /*run*/) const override { return {}; }
  cluster::Limits limits() override { return {}; }
  double poll_s() const override { return 0.01; }
  bool queues() const override { return true; }

 private:
  // The CPU's peak is measured in the first run alone.
  Template train(sweep::RunSpec spec, const fs::path& path) {
    spec.peak = peak_;
    write_file_atomically(path, sweep::run_spec_json(spec) + "\n");
    const CommandResult result = run_command({trainer_.string(), "--spec", path.string()});
    if (result.exit_code != 0) throw Error(ExitCode::internal, trainer_.string(), result.err);
    Template records =
        template_of(fs::path(spec.run_dir) / runlog::log_file_name(spec.attempt, 0, 0));
    for (const auto& [kind, record] : records) {
      if (kind == runlog::Kind::peak)
        peak_ = {.tflops = record.at("peak_tflops"), .source = record.at("source")};
    }
    return records;
  }

  cluster::Cluster cluster_;
  fs::path trainer_;
  int last_id_ = 0;
  std::optional<sweep::Peak> peak_;
  std::map<std::string, Template> templates_;  // by the point's canonical form without its seed
};

// 20 shapes, and as many seeds as make the points asked for.
void write_sweep(const fs::path& path, const std::string& project, const std::string& cluster,
                 std::int64_t points) {
  std::vector<std::int64_t> seeds;
  for (std::int64_t seed = 1; seed <= (points + kShapes - 1) / kShapes; ++seed)
    seeds.push_back(seed);
  write_file_atomically(
      path, fmt::format("tessera_sweep: 1\nproject: {}\n"
                        "defaults: {{cluster: {}, gpu: cpu, gpus: 1, threads: 1, precision: fp32, "
                        "steps: 3, warmup: 1, microbatch_size: 1}}\n"
                        "matrix:\n  model: [./tiny.yaml]\n  seq_len: [4, 8, 12, 16]\n  seed: [{}]\n"
                        "batch: {{samples: [1, 2, 3, 4, 5]}}\n",
                        project, cluster, fmt::join(seeds, ", ")));
}

class Desk {
 public:
  Desk(fs::path folder, std::int64_t points) : folder_(std::move(folder)), points_(points) {
    bin_ = fs::read_symlink("/proc/self/exe").parent_path();
    write_file_atomically(folder_ / "tiny.yaml",
                          "tessera_model: 1\nname: tiny\nd_model: 32\nn_layers: 1\nn_heads: 1\n"
                          "ffn: 64\nvocab: 128\nmax_seq_len: 16\nlr: 1.0e-3\n");
    write_file_atomically(
        folder_ / "cluster.yaml",
        fmt::format("tessera_cluster: 1\nkind: slurm\nworkspace: {}\ntrainer: {{path: {}}}\n"
                    "gpus: {{cpu: {{per_node: 1, nodes: 4}}}}\n",
                    (folder_ / "runs").string(), (bin_ / "trainer").string()));
    make_directories(folder_ / "slurm");
    for (const char* program : kSlurmPrograms) {
      const fs::path path = folder_ / "slurm" / program;
      write_file_atomically(
          path, fmt::format("#!/bin/sh\necho {} >>'{}'\nexit 1\n", program, asked().string()));
      fs::permissions(path, fs::perms::owner_all);
    }
    ::setenv("TESSERA_STATE_DIR", (folder_ / "state").c_str(), 1);
    ::unsetenv("TESSERA_WORKSPACE");
    const char* path = std::getenv("PATH");
    ::setenv("PATH", fmt::format("{}:{}", (folder_ / "slurm").string(), path ? path : "").c_str(),
             1);
    fs::current_path(folder_);
  }

  void measure(const std::string& project, const std::string& cluster) const {
    const fs::path sweep = folder_ / (project + ".yaml");
    write_sweep(sweep, project, cluster, points_);
    const std::int64_t points = first_submit(sweep.string());
    const std::string done = fmt::format("{} runs, 0 to start, {} done before", points, points);
    time("second submit", {"submit", "--sweep", sweep.string(), "--RUN"}, done);
    time("submit status", {"submit", "status", project}, fmt::format("{} ok", points));
    time("collect", {"collect", project}, "results.csv");
    const auto table = read_file(folder_ / "results" / project / "results.csv");
    const auto rows = std::ranges::count(table, '\n') - 1;
    if (rows != points)
      throw Error(ExitCode::internal, project, fmt::format("{} rows of {} points", rows, points));
  }

 private:
  fs::path asked() const { return folder_ / "asked"; }

  // By the library that submit consists of.
  std::int64_t first_submit(const std::string& sweep) const {
    const double start_s = monotonic_seconds();
    cli::Command command("submit", "Plan and submit");
    apps::PlanFlags flags;
    flags.declare(command);
    command.parse(std::vector<std::string>{"--RUN", sweep, "--sweep"});  // the last word first
    const apps::SubmitRequest request = flags.request();
    const apps::Plan plan = apps::make_plan(request);
    Instant scheduler(plan.clusters.begin()->second, bin_ / "trainer");
    submit::SubmitOptions options;
    options.project = plan.project;
    options.workspace = folder_ / "runs";
    options.catalogue = plan.catalogue;
    options.wait = true;
    const std::atomic<bool> never{false};
    const submit::SubmitReport report =
        submit::submit_plan(plan.expansion, scheduler, options, {}, never);
    const auto points = std::ssize(plan.expansion.points);
    if (report.ok != points)
      throw Error(ExitCode::internal, sweep, fmt::format("{} of {} ok", report.ok, points));
    print(plan.project, "first submit", {monotonic_seconds() - start_s}, "its jobs end at once");
    return points;
  }

  void time(const char* name, std::vector<std::string> words, const std::string& wanted) const {
    const std::string project =
        words.back().starts_with('-') ? fs::path(words[2]).stem().string() : words.back();
    const std::string shown = fmt::format("{}", fmt::join(words, " "));
    words.front() = (bin_ / words.front()).string();
    std::error_code ignored;
    fs::remove(asked(), ignored);
    std::vector<double> seconds;
    const double cpu_before_s = cpu_seconds();
    for (int round = 0; round < kRounds; ++round) {
      const double start_s = monotonic_seconds();
      const CommandResult result = run_command(words);
      seconds.push_back(monotonic_seconds() - start_s);
      if (result.exit_code != 0 || result.out.find(wanted) == std::string::npos) {
        throw Error(ExitCode::internal, shown,
                    fmt::format("exit code {}, not \"{}\" but: {}{}", result.exit_code, wanted,
                                result.out, result.err));
      }
    }
    const std::string calls = read_file_if_exists(asked()).value_or("");
    const auto count = std::ranges::count(calls, '\n');
    print(project, name, seconds,
          fmt::format("{:.3f} s of CPU time each, Slurm was called {} times",
                      (cpu_seconds() - cpu_before_s) / kRounds, count));
  }

  static void print(const std::string& project, const char* name, std::vector<double> seconds,
                    const std::string& what) {
    std::ranges::sort(seconds);
    fmt::print("{:<6} {:<14}{:>8.3f} s ({:.3f} to {:.3f}, {} rounds): {}\n", project, name,
               seconds[seconds.size() / 2], seconds.front(), seconds.back(), seconds.size(), what);
    std::fflush(stdout);
  }

  fs::path folder_;
  fs::path bin_;
  std::int64_t points_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 3) throw Error(ExitCode::usage, "finished_points", "takes POINTS and FOLDER");
    const std::int64_t points =
        argc < 2 ? kPoints : require_integer(argv[1], "POINTS", 1, sweep::kMostPoints);
    const Scratch scratch(argc < 3 ? "" : argv[2]);
    const Desk desk(scratch.folder(), points);
    desk.measure("here", "local");
    desk.measure("slurm", "./cluster.yaml");
    fs::current_path("/");
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "finished_points: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "finished_points: internal fault: {}\n", error.what());
    return static_cast<int>(ExitCode::internal);
  }
}
