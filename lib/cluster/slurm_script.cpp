#include "lib/cluster/slurm_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "lib/base/error.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kEndOfSpec = "END_OF_SPECIFICATION";

[[noreturn]] void refuse(const Job& job, const std::string& what, std::string_view fix) {
  throw Error(ExitCode::refused, job.name, what, fix);
}

// For bash: as it is where nothing in it means anything, else in single quotes.
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

class Script {
 public:
  Script(const Cluster& cluster, const Job& job, const SlurmScriptOptions& options)
      : cluster_(cluster), job_(job), options_(options) {
    if (job.runs.empty()) refuse(job, "a job without runs", "");
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

  std::string text() {
    head();
    environment();
    step();
    array_or_runs();
    return std::move(text_);
  }

 private:
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

  std::int64_t ranks_per_node() const { return job_.ranks / job_.nodes; }

  std::int64_t cpus_per_task() const {
    return job_.threads > 0 ? job_.threads : cluster_.slurm.cpus_per_gpu;
  }

  void gpu_request() {
    if (gpu_->name == "cpu" || gpu_->request == "none") return;
    const std::string what = gpu_->gres.empty() ? "gpu" : gpu_->gres;
    if (gpu_->request == "gpus-per-node") {
      // --gres names the kind of device first, --gpus-per-node knows that it is a GPU.
      std::string type = what;
      if (type == "gpu") type.clear();
      if (type.starts_with("gpu:")) type.erase(0, 4);
      sbatch("gpus-per-node", type.empty() ? fmt::to_string(ranks_per_node())
                                           : fmt::format("{}:{}", type, ranks_per_node()));
    } else {
      sbatch("gres", fmt::format("{}:{}", what, ranks_per_node()));
    }
  }

  void head() {
    const Slurm& slurm = cluster_.slurm;
    line("#!/bin/bash");
    for (const RunStart& run : job_.runs) names_ += (names_.empty() ? "" : " ") + run.run;
    const char* how = job_.runs.size() == 1 ? ""
                      : job_.array          ? ", an array"
                                            : ", one after the other";
    line("# {} run{} of {}{}. `sbatch THIS_FILE` runs {} again, as further attempts.",
         job_.runs.size(), job_.runs.size() == 1 ? "" : "s", job_.project, how,
         job_.runs.size() == 1 ? "it" : "them");
    sbatch("job-name", job_.name);
    constexpr std::size_t kMostComment = 200;
    std::string comment = fmt::format("tessera {} {}", job_.project, names_);
    if (comment.size() > kMostComment) comment = comment.substr(0, kMostComment - 3) + "...";
    sbatch("comment", comment);
    sbatch_if("partition", slurm.partition);
    sbatch_if("account", slurm.account);
    sbatch_if("qos", slurm.qos);
    sbatch_if("reservation", slurm.reservation);
    sbatch_if("constraint", gpu_->constraint);
    sbatch_if("nodelist", slurm.nodelist);
    if (!slurm.exclude.empty()) sbatch("exclude", fmt::to_string(fmt::join(slurm.exclude, ",")));
    line("#SBATCH --nodes={}", job_.nodes);
    line("#SBATCH --ntasks-per-node={}", ranks_per_node());
    if (cpus_per_task() > 0) line("#SBATCH --cpus-per-task={}", cpus_per_task());
    gpu_request();
    sbatch_if("mem", slurm.mem);
    if (slurm.exclusive) line("#SBATCH --exclusive");
    if (job_.time_limit_s > 0) line("#SBATCH --time={}", slurm_time(job_.time_limit_s));
    line("#SBATCH --signal=USR1@{}", slurm_warning_s(job_.time_limit_s));
    const RunStart& first = job_.runs.front();
    if (job_.array) {
      // Each element writes into its own run's folder, below.
      line("#SBATCH --array=0-{}", job_.runs.size() - 1);
      line("#SBATCH --output=/dev/null");
    } else {
      sbatch("output", literal_path(job_, output_of(first).string()));
    }
    line("#SBATCH --open-mode=append");
    if (!job_.array) sbatch("chdir", first.run_dir.string());
    line("#SBATCH --no-requeue");
    line("#SBATCH --wait-all-nodes=1");
    // Nothing of the submitter's. (23.02 and later know the word; before, it is the name of a
    // variable that is not set.)
    line("#SBATCH --export=NIL");
    if (!job_.after.empty()) {
      sbatch("dependency", fmt::format("afterany:{}", fmt::join(job_.after, ":")));
      line("#SBATCH --kill-on-invalid-dep=yes");
    }
    for (const std::string& extra : slurm.extra) {
      if (extra.find('\n') != std::string::npos)
        refuse(job_, fmt::format("slurm.extra '{}' has more than one line", extra),
               "one line each");
      line("#SBATCH {}", extra);
    }
    line("");
  }

  static fs::path output_of(const RunStart& run) {
    return run.run_dir / fmt::format("script.{}.out", run.attempt);
  }

  // bash's own default where the environment has no PATH at all.
  void environment() {
    line("export PATH=\"${{PATH:-/usr/local/bin:/usr/bin:/bin}}\"");
    if (!options_.bin.empty()) line("PATH=\"$PATH\":{}", shell_word(options_.bin));
    line("unset SLURM_JWT # a token of the submitter");
    if (!cluster_.trainer.modules.empty()) {
      line("command -v module >/dev/null || . /etc/profile");
      line("module load {}", fmt::join(shell_words(cluster_.trainer.modules), " "));
    }
    for (const auto& [name, value] : cluster_.env) line("export {}={}", name, shell_word(value));
    if (!cluster_.slurm.prologue.empty()) {
      text_ += cluster_.slurm.prologue;
      if (!text_.ends_with('\n')) text_ += '\n';
    }
    line("");
  }

  static std::vector<std::string> shell_words(const std::vector<std::string>& texts) {
    std::vector<std::string> result;
    for (const std::string& text : texts) result.push_back(shell_word(text));
    return result;
  }

  std::vector<std::string> srun() const {
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

  // The function that every run calls.
  void step() {
    const bool many = job_.runs.size() > 1 && !job_.array;
    line("trainer={}", shell_word(trainer_));
    text_ += R"sh(restart=${SLURM_RESTART_COUNT:-0}
result=0
ending=
trap 'ending="it was told to end"' TERM

# What each rank runs. The first that fails notes its code (128 + n: by signal n); srun gives the largest of all, also of
# the ranks that it ended because of that one.
task='trap : TERM USR1; "$0"; code=$?; [ "$code" = 0 ] || (set -C; echo "$code" >"$1") 2>/dev/null; exit "$code"'

# run FOLDER ATTEMPT [-u NAME | NAME=VALUE]...: one step, its specification in TESSERA_SPEC.
run() {
  local folder=$1 attempt=$2 code=0
  shift 2
)sh";
    if (many) {
      // The signal comes once: whoever begins after it would not be told.
      if (job_.time_limit_s > 0) {
        constexpr std::int64_t kEarliness_s = 60;
        const std::int64_t last_s =
            job_.time_limit_s - slurm_warning_s(job_.time_limit_s) - kEarliness_s;
        line("  [ \"$SECONDS\" -lt {} ] || ending=\"${{ending:-the time limit is near}}\"",
             std::max<std::int64_t>(1, last_s));
      }
      text_ += R"sh(  if [ -n "$ending" ]; then
    echo "$folder: not begun: $ending"
    return
  fi
)sh";
    }
    text_ += R"sh(  if ! cd "$folder"; then
    echo "$folder: the run's folder is not there on $(hostname)"
    result=19
    return
  fi
  # Of a script that was started again: the trainer takes the next free attempt too.
  while [ -e "log.$attempt.$restart.0.jsonl" ]; do attempt=$((attempt + 1)); done
  rm -f ".failed.$attempt.$restart"
)sh";
    if (cluster_.trainer.image.empty()) {
      line("  if [ ! -x \"$trainer\" ]; then");
      line("    echo \"$trainer is not there or not executable on $(hostname)\"");
      line("    code=127");
      line("  else");
      command("    ");
      line("  fi");
    } else {
      command("  ");
    }
    text_ += R"sh(  if [ -s ".failed.$attempt.$restart" ]; then
    read -r code <".failed.$attempt.$restart"
    rm -f ".failed.$attempt.$restart"
  fi
  # Whole or not at all.
  if ! { echo "$code" >".exit.$attempt.$restart" && mv -f ".exit.$attempt.$restart" "exit.$attempt.$restart"; }; then
    echo "$folder: exit code $code cannot be noted"
  fi
)sh";
    if (many) {
      text_ += R"sh(  # Some failed: which, their own logs and exit files tell.
  [ "$code" = 0 ] || result=9
  if tail -n 1 "log.$attempt.$restart.0.jsonl" 2>/dev/null | grep -q '"reason":"time limit near"'; then
    ending="the time limit is near"
  fi
}
)sh";
    } else {
      text_ += R"sh(  # Slurm's accounts would show 139 as 11.
  if [ "$code" -gt 128 ]; then result=18; else result=$code; fi
}
)sh";
    }
    line("export TESSERA_SPEC");
  }

  void command(std::string_view indent) {
    const std::vector<std::string> words = srun();
    text_ += fmt::format("{}env \"$@\" {} \\\n", indent, words.front());
    std::string options = fmt::format("{}  ", indent);
    constexpr std::size_t kWidth = 110;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (options.size() + words[i].size() > kWidth) {
        text_ += options + "\\\n";
        options = fmt::format("{}  ", indent);
      }
      options += words[i] + " ";
    }
    text_ += options + "\\\n";
    line("{}  --open-mode=append --output=\"out.$attempt.$restart.%t\" \\", indent);
    line("{}  sh -c \"$task\" \"$trainer\" \".failed.$attempt.$restart\" || code=$?", indent);
  }

  void one_run(const RunStart& run, std::string_view indent) {
    line("{}# {}, attempt {}", indent, run.run, run.attempt);
    if (job_.array) {
      line("{}exec >>{} 2>&1 || exit 19", indent, shell_word(output_of(run).string()));
    }
    std::string end(kEndOfSpec);
    while (run.spec_json.find(end) != std::string::npos) end += '_';
    line("{}IFS= read -r -d '' TESSERA_SPEC <<'{}'", indent, end);
    line("{}", run.spec_json);
    line("{}", end);
    std::string call =
        fmt::format("{}run {} {}", indent, shell_word(run.run_dir.string()), run.attempt);
    for (const std::string& name : run.unset) call += " -u " + shell_word(name);
    for (const auto& [name, value] : run.env) {
      const auto set = cluster_.env.find(name);
      if (set == cluster_.env.end() || set->second != value)
        call += fmt::format(" {}", shell_word(fmt::format("{}={}", name, value)));
    }
    // What the script says of a run stands in that run's folder: the first one's is the job's.
    if (!job_.array && &run != &job_.runs.front())
      call += fmt::format(" >>{} 2>&1 || result=9", shell_word(output_of(run).string()));
    line("{}", call);
  }

  void array_or_runs() {
    if (!job_.array) {
      for (const RunStart& run : job_.runs) {
        line("");
        one_run(run, "");
      }
      line("\nexit \"$result\"");
      return;
    }
    line("\ncase $SLURM_ARRAY_TASK_ID in");
    for (std::size_t i = 0; i < job_.runs.size(); ++i) {
      line("  {})", i);
      one_run(job_.runs[i], "    ");
      line("    ;;");
    }
    line("esac\nexit \"$result\"");
  }

  const Cluster& cluster_;
  const Job& job_;
  const SlurmScriptOptions& options_;
  const GpuEntry* gpu_ = nullptr;
  std::string trainer_;
  std::string names_;
  std::string text_;
};

}  // namespace

std::string slurm_script(const Cluster& cluster, const Job& job,
                         const SlurmScriptOptions& options) {
  return Script(cluster, job, options).text();
}

fs::path slurm_script_path(const Job& job) {
  const RunStart& first = job.runs.front();
  return first.run_dir / fmt::format("script.{}.sh", first.attempt);
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
