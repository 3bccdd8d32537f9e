// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/error.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const Job& job, const std::string& what, std::string_view fix) {
  throw Error(ExitCode::refused, job.name, what, fix);
}

// For a #SBATCH line, whose words end at spaces and whose comments begin at #.
std::string sbatch_value(const Job& job, std::string_view key, std::string_view text) {
  if (text.find('\n') != std::string_view::npos || text.find('\r') != std::string_view::npos)
    refuse(job, fmt::format("the value of --{} has more than one line", key), "one line");
  if (text.find_first_of(" \t#'\"\\") == std::string_view::npos) return std::string(text);
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

// A path in which Slurm is to replace nothing. `%%` is a percent sign; a backslash would end all
// replacing and be dropped.
std::string literal_path(const Job& job, const std::string& path) {
  if (path.find('\\') != std::string::npos)
    refuse(job, fmt::format("'{}' has a backslash", path), "Slurm takes no such path for output");
  std::string result;
  for (const char c : path) {
    if (c == '%') result += '%';
    result += c;
  }
  return result;
}

// Lines of a script, as they come.
class Lines {
 public:
  explicit Lines(const Job& job) : job_(job) {}

  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }
  void sbatch(std::string_view key, std::string_view value) {
    line("#SBATCH --{}={}", key, sbatch_value(job_, key, value));
  }
  void sbatch_if(std::string_view key, const std::string& value) {
    if (!value.empty()) sbatch(key, value);
  }
  void add(std::string_view text) { text_ += text; }
  std::string take() { return std::move(text_); }

 private:
  const Job& job_;
  std::string text_;
};

}  // namespace

std::string shell_word(std::string_view text) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:,@%+=").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += R"('\'')";
    } else {
      result += c;
    }
  }
  return result + "'";
}

SlurmJob::SlurmJob(const Cluster& cluster, const Job& job, const SlurmScriptOptions& options)
    : cluster_(cluster), job_(job), options_(options) {
  if (job.ranks < 1 || job.nodes < 1 || job.ranks % job.nodes != 0) {
    refuse(job, fmt::format("{} ranks do not spread evenly over {} nodes", job.ranks, job.nodes),
           "a multiple of the nodes");
  }
  const auto entry = std::ranges::find(cluster.gpus, job.gpu, &GpuEntry::name);
  if (entry == cluster.gpus.end())
    refuse(job, fmt::format("cluster '{}' has no '{}'", cluster.name, job.gpu), "");
  gpu_ = &*entry;
  trainer_ = cluster.trainer.path.empty() ? options.trainer : cluster.trainer.path;
  if (trainer_.empty()) {
    throw Error(ExitCode::input, cluster.source, "no trainer is known",
                "trainer: {path: /where/it/is/on/the/nodes}");
  }
}

std::int64_t SlurmJob::cpus_per_task() const {
  return job_.threads > 0 ? job_.threads : cluster_.slurm.cpus_per_gpu;
}

// The value of --gres or --gpus-per-node with its key, or "".
std::string SlurmJob::gpu_request() const {
  if (gpu_->name == "cpu" || gpu_->request == "none") return {};
  const std::string what = gpu_->gres.empty() ? "gpu" : gpu_->gres;
  Lines lines(job_);
  if (gpu_->request == "gpus-per-node") {
    // --gres names the kind of device first, --gpus-per-node knows that it is a GPU.
    std::string type = what;
    if (type == "gpu") type.clear();
    if (type.starts_with("gpu:")) type.erase(0, 4);
    lines.sbatch("gpus-per-node", type.empty() ? fmt::to_string(ranks_per_node())
                                               : fmt::format("{}:{}", type, ranks_per_node()));
  } else {
    lines.sbatch("gres", fmt::format("{}:{}", what, ranks_per_node()));
  }
  return lines.take();
}

std::string SlurmJob::head(const fs::path& output, const fs::path& begins_in) const {
  const Slurm& slurm = cluster_.slurm;
  Lines lines(job_);
  lines.sbatch("job-name", job_.name);
  constexpr std::size_t kMostComment = 200;
  std::string comment = fmt::format("tessera {}", job_.project);
  for (const RunStart& run : job_.runs) comment += " " + run.run;
  if (comment.size() > kMostComment) comment = comment.substr(0, kMostComment - 3) + "...";
  lines.sbatch("comment", comment);
  lines.sbatch_if("partition", slurm.partition);
  lines.sbatch_if("account", slurm.account);
  lines.sbatch_if("qos", slurm.qos);
  lines.sbatch_if("reservation", slurm.reservation);
  lines.sbatch_if("constraint", gpu_->constraint);
  lines.sbatch_if("nodelist", slurm.nodelist);
  if (!slurm.exclude.empty())
    lines.sbatch("exclude", fmt::to_string(fmt::join(slurm.exclude, ",")));
  lines.line("#SBATCH --nodes={}", job_.nodes);
  lines.line("#SBATCH --ntasks-per-node={}", ranks_per_node());
  if (cpus_per_task() > 0) lines.line("#SBATCH --cpus-per-task={}", cpus_per_task());
  lines.add(gpu_request());
  lines.sbatch_if("mem", slurm.mem);
  if (slurm.exclusive) lines.line("#SBATCH --exclusive");
  if (job_.time_limit_s > 0) lines.line("#SBATCH --time={}", slurm_time(job_.time_limit_s));
  lines.line("#SBATCH --signal=USR1@{}", slurm_warning_s(job_.time_limit_s));
  if (job_.array) lines.line("#SBATCH --array=0-{}", job_.runs.size() - 1);
  if (!output.empty()) lines.sbatch("output", literal_path(job_, output.string()));
  lines.line("#SBATCH --open-mode=append");
  if (!begins_in.empty()) lines.sbatch("chdir", begins_in.string());
  lines.line("#SBATCH --no-requeue");
  lines.line("#SBATCH --wait-all-nodes=1");
  // Nothing of the submitter's. (23.02 and later know the word; before, it is the name of a
  // variable that is not set.)
  lines.line("#SBATCH --export=NIL");
  if (!job_.after.empty()) {
    lines.sbatch("dependency", fmt::format("afterany:{}", fmt::join(job_.after, ":")));
    lines.line("#SBATCH --kill-on-invalid-dep=yes");
  }
  for (const std::string& extra : slurm.extra) {
    if (extra.find('\n') != std::string::npos)
      refuse(job_, fmt::format("slurm.extra '{}' has more than one line", extra), "one line each");
    lines.line("#SBATCH {}", extra);
  }
  return lines.take();
}

std::string SlurmJob::environment() const {
  Lines lines(job_);
  // bash's own default where the environment has no PATH at all.
  lines.line("export PATH=\"${{PATH:-/usr/local/bin:/usr/bin:/bin}}\"");
  if (!options_.bin.empty()) lines.line("PATH=\"$PATH\":{}", shell_word(options_.bin));
  lines.line("unset SLURM_JWT # a token of the submitter");
  if (!cluster_.trainer.modules.empty()) {
    std::string modules;
    for (const std::string& module : cluster_.trainer.modules) modules += " " + shell_word(module);
    lines.line("command -v module >/dev/null || . /etc/profile");
    lines.line("no_modules=");
    lines.line(
        "module load{0} || {{ echo \"$(hostname): modules not loaded:{0}\"; no_modules=1; }}",
        modules);
  }
  for (const auto& [name, value] : cluster_.env)
    lines.line("export {}={}", name, shell_word(value));
  const std::string& prologue = cluster_.slurm.prologue;
  lines.add(prologue);
  if (!prologue.empty() && !prologue.ends_with('\n')) lines.add("\n");
  return lines.take();
}

std::vector<std::string> SlurmJob::srun() const {
  std::vector<std::string> words{"srun", fmt::format("--nodes={}", job_.nodes),
                                 fmt::format("--ntasks={}", job_.ranks),
                                 fmt::format("--ntasks-per-node={}", ranks_per_node())};
  if (cpus_per_task() > 0) words.push_back(fmt::format("--cpus-per-task={}", cpus_per_task()));
  // What sbatch set for its --export would have the step without an environment.
  words.insert(words.end(), {"--export=ALL", "--mpi=none", "--kill-on-bad-exit=1", "--wait=60"});
  if (cluster_.slurm.bind == "numa")
    words.insert(words.end(), {"--cpu-bind=ldoms", "--mem-bind=local"});
  if (cluster_.slurm.bind == "none") words.emplace_back("--cpu-bind=none");
  const Trainer& trainer = cluster_.trainer;
  if (!trainer.image.empty()) {
    words.push_back("--container-image=" + shell_word(trainer.image));
    std::vector<std::string> mounts;
    for (const std::string& mount : trainer.mounts)
      mounts.push_back(mount.find(':') == std::string::npos ? fmt::format("{0}:{0}", mount)
                                                            : mount);
    if (!mounts.empty())
      words.push_back("--container-mounts=" + shell_word(fmt::to_string(fmt::join(mounts, ","))));
    words.emplace_back("--no-container-mount-home");
    words.emplace_back("--container-workdir=\"$PWD\"");
  }
  return words;
}

std::int64_t slurm_warning_s(std::int64_t time_limit_s) {
  constexpr std::int64_t kLeast = 15;
  constexpr std::int64_t kMost = 120;
  return time_limit_s == 0 ? kMost : std::clamp(time_limit_s / 10, kLeast, kMost);
}

std::string slurm_time(std::int64_t seconds) {
  constexpr std::int64_t kDay = 86400;
  const std::int64_t days = seconds / kDay;
  const std::string clock =
      fmt::format("{:02}:{:02}:{:02}", seconds % kDay / 3600, seconds % 3600 / 60, seconds % 60);
  return days > 0 ? fmt::format("{}-{}", days, clock) : clock;
}

}  // namespace tessera::cluster
