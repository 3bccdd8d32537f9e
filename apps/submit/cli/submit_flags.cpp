#include "apps/submit/cli/submit_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "apps/submit/cli/flag_grid.h"
#include "apps/submit/cli/foundry_flags.h"
#include "apps/submit/cli/submission_flags.h"
#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/base/version.h"
#include "lib/cli/cli_error.h"
#include "lib/point/identity.h"
#include "lib/sweep/axes.h"
#include "lib/sweep/duration.h"

namespace tessera::apps {

namespace {

void declare_grid(CLI::App& app, GridFlags& grid) {
  const char* axis = "What varies (lists span a product)";
  const auto list = [&](const char* names, std::vector<std::string>& target, const char* help) {
    return app.add_option(names, target, help)->group(axis);
  };
  list("-m,--model_yamls,--model_yaml,--models", grid.models,
       "models: built-in names (7b) or files");
  list("-t,--precisions,--precision,--types", grid.precisions,
       "fp32, tf32, bf16, fp16, fp8 (default bf16)");
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

// Verbs, their positional arguments, what they are for, and which flags go with them beside
// --workspace and --project.
struct Verb {
  const char* name;
  const char* help;
  std::vector<std::string> flags;
};
const Verb kVerbs[] = {
    {"status", "[PROJECT]: where the runs of a project stand", {"--all", "--watch", "--offline"}},
    {"cancel", "[PROJECT [RUN...]]: end the runs of a project, or the named ones", {}},
    {"logs",
     "[PROJECT [RUN]]: what a run printed; RUN is its name, its id or a piece that only one has",
     {"--follow", "--attempt"}},
    {"rerun",
     "[PROJECT] RUN...: start the named runs again, however they ended",
     {"--profile", "--wait", "--detach", "--time", "--break-lock", "--gpu-catalogue"}},
    {"rebuild",
     "[PROJECT]: make the ledger anew from what the runs left",
     {"--rebuild", "--break-lock"}},
    {"init",
     "NAME: write the cluster file NAME.yaml from what Slurm says of its partitions, GPUs and "
     "limits",
     {"--partition", "--gpu-catalogue"}},
    {"doctor",
     "[-c] NAME...: whether clusters are as their files say, and what to change if not",
     {"--clusters", "--no-jobs", "--patience", "--gpu-catalogue"}},
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
    throw Error(ExitCode::usage, given, "unknown flag",
                did_you_mean(given, known).value_or("see submit --help"));
  }
  std::vector<std::string> verbs;
  for (const Verb& verb : kVerbs) verbs.emplace_back(verb.name);
  throw Error(
      ExitCode::usage, given, "belongs to no flag",
      did_you_mean(given, verbs).value_or("a project goes to --project, a sweep to --sweep"));
}

// Everything else on the line would be silently without effect.
void refuse_flags_of_submission(const CLI::App& app, const Verb& verb) {
  std::vector<std::string> allowed{"--workspace", "--project", "--help", "--version"};
  allowed.insert(allowed.end(), verb.flags.begin(), verb.flags.end());
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    if (std::ranges::find(allowed, name) == allowed.end())
      throw Error(ExitCode::usage, name, fmt::format("does not go with the verb {}", verb.name));
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
  SubmissionFlags submission;
  FoundryFlags foundry;
  CLI::App app("Plans a sweep of training benchmarks, and with --RUN submits it.", "submit");
  app.set_version_flag("--version", version_line("submit"));
  app.allow_extras();
  app.footer("Axes (--axis, --set, sweep files):\n" + sweep::axes_help());
  declare_grid(app, grid);
  declare_submission(app, request, submission);
  declare_foundry(app, foundry);
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
  if (app.count("--activation_cpu_offload") > 0 && foundry.cpu_offload.empty())
    foundry.cpu_offload = "true";
  std::ranges::replace(grid.checkpointing, std::string(), std::string("true"));

  for (const CLI::App* command : app.get_subcommands()) request.verb = command->get_name();
  if (request.verb.empty() && request.rebuild) request.verb = "rebuild";
  if (!request.verb.empty()) {
    refuse_flags_of_submission(app, *std::ranges::find_if(kVerbs, [&](const Verb& known) {
                                 return known.name == request.verb;
                               }));
    check_submission(submission, request);
    request.clusters = grid.clusters;
    return request;
  }

  if (request.run && request.json)
    throw Error(ExitCode::usage, "--json", "prints a plan, --RUN submits it", "keep one of them");
  if (request.memory && (request.run || request.json))
    throw Error(ExitCode::usage, "--memory", "prints tables of a plan",
                fmt::format("leave out {}", request.run ? "--RUN" : "--json"));
  check_foundry(foundry, request);
  check_submission(submission, request);
  try {
    request.grid = grid_of_flags(grid);
  } catch (const Error& fault) {
    // Axis values have one reader for files and flags; a flag's fault is the command line's.
    if (fault.code() == ExitCode::input && fault.where().starts_with('-'))
      throw Error(ExitCode::usage, "", fault.what());
    throw;
  }
  if (!foundry.cpu_offload.empty()) {
    const char* flag = "--activation_cpu_offload";
    const std::string key = "activation_cpu_offload";
    if (std::ranges::any_of(request.grid.forced,
                            [&](const sweep::Setting& set) { return set.key == key; }))
      throw Error(ExitCode::usage, flag, fmt::format("'{}' is given twice", key));
    request.grid.forced.push_back(
        {"activation_cpu_offload", foundry_bool(foundry.cpu_offload, flag), flag});
  }
  request.has_sweep = !grid.sweep.empty();
  request.chooses_gpu = request.has_sweep || !settings_of(request.grid, "gpu").empty();
  if (submission.repeats.empty()) request.repeats = request.grid.repeats;
  take_limits_of_sweep(submission, request);
  if (request.project.empty() && app.count("--project") == 0)
    request.project = request.grid.project.empty() ? "tput" : request.grid.project;
  check_project(request);
  return request;
}

}  // namespace tessera::apps
