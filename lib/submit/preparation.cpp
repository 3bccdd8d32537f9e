#include "lib/submit/preparation.h"

#include <cstdlib>

#include "lib/base/process.h"
#include "lib/flops/utilization.h"
#include "lib/submit/cpu_peak.h"

namespace tessera::submit {

// How the run's threads wait for each other, where nobody has said it. Spinning threads take the
// cores from those that they wait for as soon as anything else runs: milliseconds an operation.
void Preparation::set_waiting(std::map<std::string, std::string>& env) const {
  for (const char* said : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
    if (std::getenv(said) != nullptr || env.contains(said)) return;
  }
  if (options_.max_parallel > 1) {
    env["OMP_WAIT_POLICY"] = "passive";
  } else {
    // A thirtieth of libgomp's own: as fast on an idle machine, half again as fast beside other
    // work.
    env["GOMP_SPINCOUNT"] = "10000";
  }
}

void Preparation::add(const sweep::Planned& point, const ledger::RunRef& ref) {
  points_[ref.run] = {.point = &point, .ref = ref};
}

void Preparation::operator()(cluster::LocalRun& run, const cluster::Company& company) {
  const auto& [planned, ref] = points_.at(run.run);
  const sweep::Point& point = planned->point;
  sweep::RunSpec spec;
  spec.project = options_.project;
  spec.id = planned->id;
  spec.run = ref.run;
  spec.label = planned->label;
  spec.repeat = ref.repeat;
  spec.repeats = options_.repeats;
  spec.attempt = ref.attempt;
  spec.user = user_name();
  spec.point = point;
  spec.microbatch = planned->microbatch;
  spec.run_dir = run.start.run_dir.string();
  spec.shared_with = company.shared_with;
  spec.profile = options_.profile;
  if (point.gpu == "cpu") {
    if (company.running == 0) measure_peaks();
    if (const auto known = peaks_.find(point.threads); known != peaks_.end())
      spec.peak = known->second;
  }
  run.start.spec_json = sweep::run_spec_json(spec);
  run.start.ranks = static_cast<int>(point.gpus);
  run.start.env = options_.cluster.env;
  set_waiting(run.start.env);
  for (const auto& [name, value] : point.env) run.start.env[name] = value;
  run.start.unset = planned->unset_env;
  for (const std::string& name : planned->unset_env) run.start.env.erase(name);
}

// Of all thread counts that are wanted, while nothing else runs: once runs overlap there is no such
// moment.
void Preparation::measure_peaks() {
  if (!options_.capabilities) return;
  for (const auto& [run, each] : points_) {
    const std::int64_t threads = each.point->point.threads;
    if (each.point->point.gpu != "cpu" || peaks_.contains(threads) || interrupted_) continue;
    peaks_[threads] = cpu_peak(
        options_.trainer, *options_.capabilities, static_cast<int>(threads),
        [&] { events_.measuring(threads); }, interrupted_);
  }
}

bool Preparation::forget_peak_if_exceeded(const std::string& run,
                                          const cluster::Outcome& outcome) const {
  const sweep::Point& point = points_.at(run).point->point;
  const auto peak = peaks_.find(point.threads);
  if (point.gpu != "cpu" || outcome.tokens_per_s <= 0 || peak == peaks_.end() || !peak->second)
    return false;
  const double reached = outcome.tokens_per_s *
                         flops::model_flops_per_token(point.model, point.seq_len) /
                         static_cast<double>(point.gpus);
  if (reached <= 1e12 * peak->second->tflops) return false;
  return forget_cpu_peak(*options_.capabilities, static_cast<int>(point.threads));
}

}  // namespace tessera::submit
