// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/text.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kEndOfSpec = "END_OF_SPECIFICATION";

class Script {
 public:
  Script(const Cluster& cluster, const Job& job, const SlurmScriptOptions& options)
      : cluster_(cluster), job_(job), slurm_(cluster, job, options) {
    if (job.runs.empty()) throw Error(ExitCode::refused, job.name, "a job without runs");
  }

  std::string text() {
    head();
    text_ += slurm_.environment() + '\n';
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

  void head() {
    line("#!/bin/bash");
    const char* how = job_.runs.size() == 1 ? ""
                      : job_.array          ? ", an array"
                                            : ", one after the other";
    line("# {} of {}{}. `sbatch THIS_FILE` runs {} again, as further attempts.",
         counted(job_.runs.size(), "run"), job_.project, how,
         job_.runs.size() == 1 ? "it" : "them");
    // Each element of an array writes into its own run's folder, below.
    const RunStart& first = job_.runs.front();
    text_ +=
        job_.array ? slurm_.head("/dev/null", {}) : slurm_.head(output_of(first), first.run_dir);
    line("");
  }

  static fs::path output_of(const RunStart& run) {
    return run.run_dir / fmt::format("script.{}.out", run.attempt);
  }

  // The function that every run calls.
  void step() {
    const bool many = job_.runs.size() > 1 && !job_.array;
    line("trainer={}", shell_word(slurm_.trainer()));
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
    const bool has_modules = !cluster_.trainer.modules.empty();
    const bool has_path = cluster_.trainer.image.empty();  // else it is in the image
    if (has_modules) {
      line("  if [ -n \"$no_modules\" ]; then");
      line("    code=126");
    }
    if (has_path) {
      line("  {} [ ! -x \"$trainer\" ]; then", has_modules ? "elif" : "if");
      line("    echo \"$trainer is not there or not executable on $(hostname)\"");
      line("    code=127");
    }
    if (has_modules || has_path) {
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
  if tail -n 1 "log.$attempt.$restart.0.jsonl" 2>/dev/null | grep -q '"ended_by":"time-limit"'; then
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
    const std::vector<std::string> words = slurm_.srun();
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
  const SlurmJob slurm_;
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

}  // namespace tessera::cluster
