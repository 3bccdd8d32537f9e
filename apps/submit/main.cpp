// SPDX-License-Identifier: Apache-2.0
// submit: plans a sweep and, with --RUN, submits it.
#include <fmt/format.h>

#include <cstdio>

#include "apps/submit/cli/doctor_verb.h"
#include "apps/submit/cli/init_verb.h"
#include "apps/submit/cli/plan_flags.h"
#include "apps/submit/cli/project_verbs.h"
#include "apps/submit/cli/submit_run.h"
#include "apps/submit/plan/make_plan.h"
#include "apps/submit/plan/plan.h"
#include "apps/submit/plan/plan_memory.h"
#include "apps/submit/plan/plan_preview.h"
#include "apps/submit/plan/plan_table.h"
#include "apps/submit/plan/plan_times.h"
#include "lib/base/error.h"
#include "lib/base/terminal.h"
#include "lib/cli/program.h"

namespace {

using namespace tessera;

void require_points(const apps::Plan& plan) {
  if (!plan.expansion.points.empty()) return;
  const std::string drops = apps::drop_summary(plan);
  throw Error(ExitCode::empty, "", "no point is left",
              drops.empty() ? "the sweep is empty" : drops);
}

int plan_or_submit(const apps::SubmitRequest& request) {
  apps::Plan plan = apps::make_plan(request);
  for (const std::string& warning : request.warnings) fmt::print(stderr, "submit: {}\n", warning);
  for (const std::string& note : plan.expansion.notes) fmt::print(stderr, "submit: {}\n", note);
  for (const std::string& note : apps::catalogue_notes(plan))
    fmt::print(stderr, "submit: {}\n", note);
  const bool renders = !request.render.empty();
  // What is only written down needs no device here.
  if (request.run || renders || request.check)
    apps::drop_incapable(plan, renders ? apps::Judged::anywhere : apps::Judged::there);
  for (const std::string& note : apps::run_notes(plan)) fmt::print(stderr, "submit: {}\n", note);
  if (request.run || request.check) {
    for (const std::string& note : apps::unasked_notes(plan))
      fmt::print(stderr, "submit: {}\n", note);
  }
  const bool is_empty = plan.expansion.points.empty();
  const bool dry = renders || request.check;
  const std::size_t width = terminal_width(stdout);
  if (is_empty || !(request.run || dry)) {
    if (request.json) {
      fmt::print("{}", apps::plan_json(plan));
    } else if (request.memory && !is_empty) {
      const std::string drops = apps::drop_lines(plan, request.all_rows, width);
      fmt::print("{}{}{}", apps::memory_tables(plan, width), drops.empty() ? "" : "\n", drops);
    } else {
      fmt::print("{}{}",
                 apps::plan_table(plan, request.all_rows, apps::obstacle(request, plan), width),
                 apps::time_lines(request, plan, width));
    }
  }
  require_points(plan);
  if (request.run) return apps::run_plan(request, plan);
  if (renders) apps::render_plan(request, plan);
  if (request.check) {
    apps::drop_incapable(plan, apps::Judged::there);
    require_points(plan);
    apps::check_plan(request, plan);
  }
  return 0;
}

int run_submit(const std::vector<std::string>& words) {
  cli::Command submit("submit", "Plan a sweep of training benchmarks, and with --RUN submit it");
  submit.details =
      "Give the grid by flags or a sweep file. Without --RUN the plan is printed and nothing "
      "happens; with it, submit starts the runs that are missing, on this machine or a cluster.";
  submit.unknown_verb_fix = "give a project with --project, a sweep with --sweep";
  submit.examples = {
      {"submit -m cpu-2m -t fp32 --seq_lens 128 256 --batch_sizes 8",
       "plan two points on this machine; add --RUN to run them"},
      {"submit --sweep quickstart --RUN", "run what is missing of a sweep file's points"}};
  submit.exit_codes = {
      {ExitCode::input, "a file that was read is wrong: sweep, model, GPUs, cluster"},
      {ExitCode::empty, "no point is left in the plan"},
      {ExitCode::refused, "understood, but not possible"},
      {ExitCode::locked, "another submit works on this project"},
      {ExitCode::conflict, "ledger, identities or workspaces contradict each other"},
      {ExitCode::runs_failed, "all was done that could be, but not every run ended ok"},
      {ExitCode::unreachable, "a cluster does not answer, or refused jobs"},
      {ExitCode::interrupted, "interrupted; the same command goes on"}};
  submit.shared_exit_codes = {{ExitCode::ok, "done"},
                              {ExitCode::internal, "a bug in Tessera: please report it"},
                              {ExitCode::usage, "the command line is wrong"},
                              {ExitCode::io, "a file, a folder or stdout cannot be used"}};
  apps::PlanFlags flags;
  flags.declare(submit);
  submit.action = [&] { return plan_or_submit(flags.request()); };
  apps::add_project_verbs(submit);
  apps::add_init(submit);
  apps::add_doctor(submit);
  cli::add_general_flags(submit, cli::CompletionBy::verb);
  return cli::run_command_line(submit, words, ExitCode::io);
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program("submit", ExitCode::io, ExitCode::internal, [&] {
    const int code = run_submit(cli::words_of(argc, argv));
    if (code == 0) cli::require_printed(ExitCode::io);
    return code;
  });
}
