#include "apps/submit_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <iostream>

#include "apps/flag_grid.h"
#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/cli/cli_error.h"
#include "lib/sweep/duration.h"
#include "lib/sweep/identity.h"

namespace tessera::apps {

namespace {

constexpr std::int64_t kMostRepeats = 99;

// llm-foundry's flags that set what this engine does anyway, and flags for what comes later.
struct OtherFlags {
  std::string limit_all_gathers;
  std::string forward_prefetch;
  std::string backward_prefetch;
  std::string attn_impl;
  std::string pad_vocab_multiple;
  std::string cpu_offload;
  std::string data_remote;
  std::string image;
  std::string priority;
  std::string wandb;
  std::string git_branch;
  std::string git_commit;

  std::string pack;
  std::string rate;
  std::string max_in_flight;
  std::string max_gpu_hours;
  std::string render;
  bool wait = false;
  bool detach = false;
  bool check = false;

  std::string repeats;
  std::string max_parallel;
};

void declare_grid(CLI::App& app, GridFlags& grid) {
  const char* axis = "What varies (lists span a product)";
  const auto list = [&](const char* names, std::vector<std::string>& target, const char* help) {
    return app.add_option(names, target, help)->group(axis);
  };
  list("-m,--model_yamls,--model_yaml,--models", grid.models,
       "models: built-in names (7b) or files");
  list("-t,--precisions,--precision,--types", grid.precisions,
       "fp32, bf16, fp16, fp8 (default bf16)");
  list("-s,--seq_len_exp", grid.seq_exponents,
       "first and last exponent of the sequence length (default 11 11)");
  list("--seq_lens", grid.seq_lens, "sequence lengths (beside -s: both)");
  list("-b,--batch_size_exp", grid.batch_exponents,
       "first and last exponent of the global batch in tokens");
  list("--batch_sizes", grid.batch_sizes, "global batches in sequences (beside -b: both)");
  list("--accum", grid.accum, "global batch = accum x gpus x microbatch (default 1)");
  list("--microbatch_size,--microbatch_sizes", grid.microbatch_sizes,
       "sequences a device computes at once, or auto (default auto)");
  list("-g,--gpu_nums,--gpu_num,--gpus", grid.gpus,
       "devices (default one node's); ranks on a CPU (default 1)");
  list("--gpu_types,--gpu_type", grid.gpu_types, "GPUs (default all of the cluster's)");
  list("-c,--clusters,--cluster", grid.clusters, "cluster names or files (default local)");
  list("--fsdp_config_mixed_precision,--mixed_precision", grid.mixed_precisions,
       "DEFAULT, PURE, FULL");
  list("--fsdp_config_shard_strategy,--sharding_strategy", grid.sharding_strategies,
       "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD");
  list("--fsdp_config_activation_checkpointing,--activation_checkpointing", grid.checkpointing,
       "none, selective, full (false and true mean none and full)")
      ->expected(0, -1);
  list("--axis", grid.axes, "NAME=V,V: any other axis, env.NAME too");

  const char* whole = "Whole sweeps";
  app.add_option("--sweep", grid.sweep, "sweep file, or a built-in name")->group(whole);
  app.add_option("--where", grid.where, "drop points for which this expression does not hold")
      ->group(whole);
  app.add_option("--set", grid.sets, "KEY=V: for every point, over what a sweep file says")
      ->group(whole);
  app.add_option("--steps", grid.steps, "optimizer steps in all (default 30)")->group(whole);
  app.add_option("--warmup", grid.warmup, "of them not measured (default 10)")->group(whole);
  app.add_flag("--exact-steps", grid.exact_steps,
               "on a GPU, do not extend short runs to 15 measured seconds")
      ->group(whole);
}

void declare_submission(CLI::App& app, SubmitRequest& request, OtherFlags& other) {
  const char* group = "Submission";
  app.add_option("--project", request.project, "name that runs and results share")->group(group);
  app.add_flag("--RUN", request.run, "submit; without it the plan is printed")->group(group);
  app.add_option("--only", request.only, "missing (default), failed, oom, all")->group(group);
  app.add_option("--repeats", other.repeats, "runs of each point")->group(group);
  app.add_option("--max-parallel", other.max_parallel, "runs at once on this machine")
      ->group(group);
  app.add_option("--workspace", request.workspace, "folder for runs")->group(group);
  app.add_option("--gpu-catalogue", request.gpu_catalogue, "file that adds GPUs")->group(group);
  app.add_flag("--break-lock", request.break_lock, "take over the lock of a dead submit")
      ->group(group);
  app.add_flag("--profile", request.profile,
               "measure each operation of three more steps of a run: collect show, and its output")
      ->group(group);
  app.add_flag("--all", request.all_rows, "print every point of the plan")->group(group);
  app.add_flag("--memory", request.memory, "print what the plan's points need of device memory")
      ->group(group);
  app.add_flag("--json", request.json, "print the plan as JSON")->group(group);

  const char* later = "Not there yet (checked, then refused)";
  app.add_option("--pack", other.pack, "several points an allocation")->group(later);
  app.add_option("--rate", other.rate, "submissions per second")->group(later);
  app.add_option("--max-in-flight", other.max_in_flight, "jobs at once")->group(later);
  app.add_option("--max-gpu-hours", other.max_gpu_hours, "budget")->group(later);
  app.add_option("--render", other.render, "write scripts into a folder")->group(later);
  app.add_flag("--wait", other.wait, "stay until all are final")->group(later);
  app.add_flag("--detach", other.detach, "return at once")->group(later);
  app.add_flag("--check", other.check, "ask the cluster, submit nothing")->group(later);
}

void declare_foundry(CLI::App& app, OtherFlags& other) {
  const char* group = "llm-foundry's (taken where they name what is done anyway)";
  const auto boolean = [&](const char* name, std::string& target) {
    app.add_option(name, target)->expected(0, 1)->group(group);
  };
  boolean("--fsdp_config_limit_all_gathers", other.limit_all_gathers);
  boolean("--fsdp_config_forward_prefetch", other.forward_prefetch);
  app.add_option("--fsdp_config_backward_prefetch", other.backward_prefetch)->group(group);
  boolean("--activation_cpu_offload", other.cpu_offload);
  app.add_option("--attn_impl", other.attn_impl)->group(group);
  app.add_option("--pad_vocab_multiple", other.pad_vocab_multiple)->group(group);
  app.add_option("--data_remote", other.data_remote)->group(group);
  app.add_option("--image", other.image)->group(group);
  app.add_option("--priority", other.priority)->group(group);
  boolean("--wandb", other.wandb);
  app.add_option("--git_branch", other.git_branch)->group(group);
  app.add_option("--git_commit", other.git_commit)->group(group);
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// As llm-foundry reads booleans.
bool foundry_bool(const std::string& text, const std::string& flag) {
  const std::string word = lower(text);
  for (const char* yes : {"true", "t", "1", "yes", "y"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "f", "0", "no", "n"}) {
    if (word == no) return false;
  }
  throw Error(ExitCode::usage, flag, fmt::format("'{}' is not a boolean", text),
              "write true or false");
}

void only_true(const std::string& text, const std::string& flag, std::string_view reason) {
  if (!text.empty() && !foundry_bool(text, flag))
    throw Error(ExitCode::refused, flag, fmt::format("cannot be turned off: {}", reason));
}

void only_value(const std::string& text, const std::string& flag, std::string_view done,
                std::string_view reason) {
  if (!text.empty() && text != done) {
    throw Error(ExitCode::refused, flag, fmt::format("'{}' is not done: {}", text, reason),
                fmt::format("leave it out or give {}", done));
  }
}

void check_foundry(const OtherFlags& other, SubmitRequest& request) {
  only_true(other.limit_all_gathers, "--fsdp_config_limit_all_gathers",
            "memory is planned for two gathered blocks at most");
  only_true(other.forward_prefetch, "--fsdp_config_forward_prefetch",
            "the schedule always gathers the next block early");
  only_value(other.backward_prefetch, "--fsdp_config_backward_prefetch", "BACKWARD_PRE",
             "the schedule gathers before the block that needs it");
  only_value(other.attn_impl, "--attn_impl", "flash", "attention is always fused and exact");
  if (!other.pad_vocab_multiple.empty()) {
    const auto multiple =
        require_integer(other.pad_vocab_multiple, "--pad_vocab_multiple", 1, 65536);
    only_value(std::to_string(multiple), "--pad_vocab_multiple", "128",
               "the engine pads the vocabulary to 128 rows in memory, never in a formula");
  }
  if (!other.data_remote.empty()) {
    throw Error(ExitCode::refused, "--data_remote", "data is synthetic or a token file",
                "leave it out, or give --set data=FILE");
  }
  const auto ignored = [&](const std::string& value, const char* flag, const char* reason) {
    if (!value.empty()) request.warnings.push_back(fmt::format("{}: ignored, {}", flag, reason));
  };
  if (!other.wandb.empty()) foundry_bool(other.wandb, "--wandb");
  ignored(other.wandb, "--wandb", "run logs are files in the workspace");
  ignored(other.git_branch, "--git_branch", "the trainer beside submit runs");
  ignored(other.git_commit, "--git_commit", "the trainer beside submit runs");
  ignored(other.priority, "--priority", "no cluster that has priorities can run yet");
  ignored(other.image, "--image", "planning needs none");
  if (!other.image.empty())
    request.not_runnable.emplace_back("--image: runs in containers come with the clusters");
}

[[noreturn]] void later(const std::string& flag) {
  throw Error(ExitCode::refused, flag, "is not there yet", "leave it out");
}

void check_later(const OtherFlags& other, const SubmitRequest& request) {
  constexpr std::int64_t kMany = 1000000;
  if (!other.pack.empty()) {
    if (!sweep::parse_duration(other.pack)) {
      throw Error(ExitCode::usage, "--pack", fmt::format("'{}' is no duration", other.pack),
                  sweep::kDurationFix);
    }
    later("--pack");
  }
  if (!other.max_in_flight.empty()) {
    require_integer(other.max_in_flight, "--max-in-flight", 1, kMany);
    later("--max-in-flight");
  }
  for (const auto& [text, flag] :
       {std::pair(&other.rate, "--rate"), std::pair(&other.max_gpu_hours, "--max-gpu-hours")}) {
    if (text->empty()) continue;
    const auto number = parse_number(*text);
    if (!number || *number <= 0)
      throw Error(ExitCode::usage, flag, fmt::format("'{}' is not a positive number", *text));
    later(flag);
  }
  if (!other.render.empty()) later("--render");
  if (other.wait) later("--wait");
  if (other.detach) later("--detach");
  if (other.check) later("--check");
  if (request.only == "stale") later("--only stale");
  if (request.only == "unknown") later("--only unknown");
  const std::vector<std::string> allowed{"missing", "failed", "oom", "all"};
  if (std::ranges::find(allowed, request.only) == allowed.end()) {
    throw Error(ExitCode::usage, "--only", fmt::format("unknown value '{}'", request.only),
                suggestion(request.only, allowed));
  }
}

// Verbs, their positional arguments and what they are for.
struct Verb {
  const char* name;
  const char* help;
  bool exists;
};
constexpr Verb kVerbs[] = {
    {"status", "[PROJECT]: where the runs of a project stand", true},
    {"cancel", "[PROJECT [RUN...]]: end the runs of a project, or the named ones", true},
    {"init", "describe a cluster (not there yet)", false},
    {"doctor", "check a cluster (not there yet)", false},
    {"logs", "show the log of a run (not there yet)", false},
    {"rerun", "run one run again (not there yet)", false},
};

void refuse_extras(const CLI::App& app, const std::vector<std::string>& extras) {
  if (extras.empty()) return;
  const std::string given = extras.front().substr(0, extras.front().find('='));
  if (given.starts_with('-')) {
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      for (const std::string& name : option->get_snames()) known.push_back("-" + name);
    }
    std::string fix = suggestion(given, known);
    if (!fix.starts_with("did you mean")) fix = "see submit --help";
    throw Error(ExitCode::usage, given, "unknown flag", fix);
  }
  std::vector<std::string> verbs;
  for (const Verb& verb : kVerbs) verbs.emplace_back(verb.name);
  std::string fix = suggestion(given, verbs);
  if (!fix.starts_with("did you mean")) fix = "a project goes to --project, a sweep to --sweep";
  throw Error(ExitCode::usage, given, "belongs to no flag", fix);
}

// What a verb takes beside its names; everything else on the line would be silently without effect.
void refuse_flags_of_submission(const CLI::App& app, const std::string& verb) {
  std::vector<std::string> allowed{"--workspace", "--project", "--help", "--version"};
  if (verb == "status") allowed.emplace_back("--all");
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    if (std::ranges::find(allowed, name) == allowed.end())
      throw Error(ExitCode::usage, name, fmt::format("does not go with the verb {}", verb));
  }
}

// "--steps ''" is a script's variable that was not set, never a wish.
void refuse_empty_flags(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    // Those may stand without a value.
    if (option->get_items_expected_min() > 0) cli::refuse_empty(app, option->get_name());
  }
}

void check_project(const SubmitRequest& request) {
  const bool from_file = request.project == request.grid.project && !request.grid.project.empty();
  const std::string fault = sweep::project_fault(request.project);
  if (fault.empty()) return;
  throw Error(from_file ? ExitCode::input : ExitCode::usage,
              from_file ? request.grid.project_where : "--project",
              fmt::format("project '{}' {}", request.project, fault),
              "up to 16 of a-z, 0-9 and single dashes, beginning with a letter: mpt-h100");
}

}  // namespace

SubmitRequest parse_submit(int argc, const char* const* argv, bool& help_shown) {
  help_shown = false;
  SubmitRequest request;
  GridFlags grid;
  OtherFlags other;
  CLI::App app("Plans a sweep of training benchmarks, and with --RUN submits it.", "submit");
  app.set_version_flag("--version", TESSERA_VERSION);
  app.allow_extras();
  declare_grid(app, grid);
  declare_submission(app, request, other);
  declare_foundry(app, other);
  for (const Verb& verb : kVerbs) {
    CLI::App* command = app.add_subcommand(verb.name, verb.help);
    command->fallthrough();
    command->add_option("names", request.names)->type_name("");
  }
  app.require_subcommand(0, 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    help_shown = true;
    return request;
  } catch (const CLI::ParseError& fault) {
    throw cli::command_line_error(app, fault);
  }
  refuse_extras(app, app.remaining(true));
  refuse_empty_flags(app);
  // llm-foundry's bare flags mean true.
  if (app.count("--activation_cpu_offload") > 0 && other.cpu_offload.empty())
    other.cpu_offload = "true";
  std::ranges::replace(grid.checkpointing, std::string(), std::string("true"));

  for (const CLI::App* command : app.get_subcommands()) {
    request.verb = command->get_name();
    const auto* verb =
        std::ranges::find_if(kVerbs, [&](const Verb& known) { return known.name == request.verb; });
    if (!verb->exists) throw Error(ExitCode::refused, request.verb, "is not there yet");
    refuse_flags_of_submission(app, request.verb);
    return request;
  }

  if (request.run && request.json)
    throw Error(ExitCode::usage, "--json", "prints a plan, --RUN submits it", "keep one of them");
  if (request.memory && (request.run || request.json))
    throw Error(ExitCode::usage, "--memory", "prints tables of a plan",
                fmt::format("leave out {}", request.run ? "--RUN" : "--json"));
  check_foundry(other, request);
  check_later(other, request);
  if (!other.max_parallel.empty()) {
    request.max_parallel =
        static_cast<int>(require_integer(other.max_parallel, "--max-parallel", 1, 1024));
  }
  try {
    request.grid = grid_of_flags(grid);
  } catch (const Error& fault) {
    // Axis values have one reader for files and flags; a flag's fault is the command line's.
    if (fault.code() == ExitCode::input && fault.where().starts_with('-'))
      throw Error(ExitCode::usage, "", fault.what());
    throw;
  }
  if (!other.cpu_offload.empty()) {
    const char* flag = "--activation_cpu_offload";
    const std::string key = "activation_cpu_offload";
    if (std::ranges::any_of(request.grid.forced,
                            [&](const sweep::Setting& set) { return set.key == key; }))
      throw Error(ExitCode::usage, flag, fmt::format("'{}' is given twice", key));
    request.grid.forced.push_back(
        {"activation_cpu_offload", foundry_bool(other.cpu_offload, flag), flag});
  }
  request.has_sweep = !grid.sweep.empty();
  request.chooses_gpu = request.has_sweep || !settings_of(request.grid, "gpu").empty();
  request.repeats =
      other.repeats.empty()
          ? request.grid.repeats
          : static_cast<int>(require_integer(other.repeats, "--repeats", 1, kMostRepeats));
  if (request.project.empty() && app.count("--project") == 0)
    request.project = request.grid.project.empty() ? "tput" : request.grid.project;
  check_project(request);
  for (const std::string& key : request.grid.limits.given) {
    if (key == "time" && !request.grid.limits.time_s) continue;
    request.not_runnable.push_back(
        fmt::format("limits.{} of the sweep file: is not there yet", key));
  }
  return request;
}

}  // namespace tessera::apps
