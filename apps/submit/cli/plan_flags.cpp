// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/plan_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "lib/base/error.h"
#include "lib/point/identity.h"
#include "lib/sweep/axes.h"

namespace tessera::apps {

namespace {

// Lists that span a product, in the order of help.
void declare_grid(CLI::App& app, GridFlags& grid) {
  app.option_defaults()->group("What varies: several values are an axis of the sweep");
  const auto list = [&](const char* names, const char* type, std::vector<std::string>& target,
                        const char* help) {
    return app.add_option(names, target, help)->type_name(type);
  };
  list("-m,--models", "NAME|FILE", grid.models,
       "Models: built-in names (7b), or files: ours, llm-foundry's, Hugging Face's config.json");
  list("-t,--precisions", "fp32|tf32|bf16|fp16|fp8", grid.precisions, "Precisions (default bf16)");
  list("-s,--seq_len_exp", "FIRST LAST", grid.seq_exponents,
       "Sequence lengths 2^FIRST to 2^LAST (default 11 11)");
  list("--seq_lens", "N", grid.seq_lens, "Sequence lengths; beside -s: both");
  list("-b,--batch_size_exp", "FIRST LAST", grid.batch_exponents,
       "Global batches of 2^FIRST to 2^LAST tokens");
  list("--batch_sizes", "N", grid.batch_sizes, "Global batches in sequences; beside -b: both");
  list("--accum", "N", grid.accum,
       "Gradient accumulation: the global batch is N x GPUs x microbatch (default 1)");
  list("--microbatch_size", "N|auto", grid.microbatch_sizes,
       "Sequences that a device computes at once (default auto: the most that fit)");
  list("-g,--gpus", "N", grid.gpus,
       "Devices (default: those of one node); on a CPU, ranks (default 1)");
  list("--gpu_types", "NAME", grid.gpu_types, "Kinds of GPU (default: all of the cluster)");
  list("-c,--clusters", "NAME|FILE", grid.clusters, "Clusters (default local: this machine)");
  list("--mixed_precision", "DEFAULT|PURE|FULL", grid.mixed_precisions,
       "What is kept and summed in which precision");
  list("--sharding_strategy", "FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD",
       grid.sharding_strategies, "What the devices divide among them");
  list("--activation_checkpointing", "none|selective|full", grid.checkpointing,
       "What is computed again for the backward pass; false and true are none and full")
      ->expected(0, -1)
      ->default_str("true");
  list("--axis", "NAME=V,V", grid.axes, "Any other axis: seed=1,2 or env.NCCL_PROTO=LL,LL128");

  app.option_defaults()->group("The whole sweep");
  app.add_option("--sweep", grid.sweep, "Plan this sweep file, or a built-in sweep (quickstart)")
      ->type_name("NAME|FILE");
  app.add_option("--where", grid.where, "Keep the points for which this holds: \"gpus == 8\"")
      ->type_name("EXPRESSION");
  app.add_option("--set", grid.sets, "Set a value, over what a sweep file says: seed=1")
      ->type_name("KEY=V");
  app.add_option("--steps", grid.steps, "Optimizer steps in all (default 30)")->type_name("N");
  app.add_option("--warmup", grid.warmup, "Steps at first that are not measured (default 10)")
      ->type_name("N");
  app.add_flag("--exact-steps", grid.exact_steps,
               "Do not extend short runs on a GPU to 15 measured seconds");
  app.add_option("--activation_cpu_offload", grid.cpu_offload,
                 "Keep activations in host memory until the backward pass")
      ->type_name("true|false")
      ->expected(0, 1)
      ->default_str("true");
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

void PlanFlags::declare(cli::Command& submit) {
  declare_grid(submit, grid_);
  declare_submission(submit, request_, submission_);
  declare_foundry(submit, foundry_);
  submit.topics.push_back({"Axes (--axis, --set, sweep files)", sweep::axes_help()});
}

SubmitRequest PlanFlags::request() const {
  SubmitRequest request = request_;
  check_foundry(foundry_, request);
  check_submission(submission_, request);
  try {
    request.grid = grid_of_flags(grid_);
  } catch (const Error& fault) {
    // Axis values have one reader for files and flags; a flag's fault is the command line's.
    if (fault.code() == ExitCode::input && fault.where().starts_with('-'))
      throw Error(ExitCode::usage, "", fault.what());
    throw;
  }
  request.has_sweep = !grid_.sweep.empty();
  request.chooses_gpu = request.has_sweep || !settings_of(request.grid, "gpu").empty();
  if (submission_.repeats.empty()) request.repeats = request.grid.repeats;
  take_limits_of_sweep(submission_, request);
  if (request.project.empty())
    request.project = request.grid.project.empty() ? "tput" : request.grid.project;
  check_project(request);
  return request;
}

}  // namespace tessera::apps
