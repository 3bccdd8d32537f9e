// submit: plans a sweep and, with --RUN, submits it.
#include <fmt/format.h>

#include <cstdio>

#include "apps/submit/cli/doctor_verb.h"
#include "apps/submit/cli/init_verb.h"
#include "apps/submit/cli/run_verbs.h"
#include "apps/submit/cli/submit_flags.h"
#include "apps/submit/cli/submit_run.h"
#include "apps/submit/cli/submit_verbs.h"
#include "apps/submit/plan/make_plan.h"
#include "apps/submit/plan/plan.h"
#include "apps/submit/plan/plan_memory.h"
#include "apps/submit/plan/plan_preview.h"
#include "apps/submit/plan/plan_table.h"
#include "apps/submit/plan/plan_times.h"
#include "lib/base/error.h"
#include "lib/cli/program.h"

namespace {

using namespace tessera;

void require_points(const apps::Plan& plan) {
  if (!plan.expansion.points.empty()) return;
  const std::string drops = apps::drop_summary(plan);
  throw Error(ExitCode::empty, "", "no point is left",
              drops.empty() ? "the sweep is empty" : drops);
}

int run_submit(int argc, const char* const* argv) {
  bool help_shown = false;
  const apps::SubmitRequest request = apps::parse_submit(argc, argv, help_shown);
  if (help_shown) return 0;
  if (request.verb == "status") return apps::run_status(request);
  if (request.verb == "cancel") return apps::run_cancel(request);
  if (request.verb == "logs") return apps::run_logs(request);
  if (request.verb == "rerun") return apps::run_rerun(request);
  if (request.verb == "doctor") return apps::run_doctor(request);
  if (request.verb == "rebuild") return apps::run_rebuild(request);
  if (request.verb == "init") return apps::run_init(request);

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
  if (is_empty || !(request.run || dry)) {
    if (request.json) {
      fmt::print("{}", apps::plan_json(plan));
    } else if (request.memory && !is_empty) {
      const std::string drops = apps::drop_lines(plan, request.all_rows);
      fmt::print("{}{}{}", apps::memory_tables(plan), drops.empty() ? "" : "\n", drops);
    } else {
      fmt::print("{}{}", apps::plan_table(plan, request.all_rows, apps::obstacle(request, plan)),
                 apps::time_lines(request, plan));
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

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program("submit", ExitCode::internal, [&] {
    const int code = run_submit(argc, argv);
    if (code == 0) cli::require_printed(ExitCode::io);
    return code;
  });
}
