// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/loop/preparation.h"

#include <cstdlib>

#include "apps/submit/trainers/cpu_peak.h"
#include "lib/base/process.h"
#include "lib/flops/utilization.h"
#include "lib/hardware/catalogue.h"
#include "lib/point/memory_need.h"

namespace tessera::submit {

// How the run's threads wait for each other, where nobody has said it. Spinning threads take the
// cores from those that they wait for as soon as anything else runs: milliseconds an operation.
void Preparation::set_waiting(std::map<std::string, std::string>& env, bool here) const {
  for (const char* said : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
    if ((here && std::getenv(said) != nullptr) || env.contains(said)) return;
  }
  if (here && options_.in_flight > 1) {
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

cluster::RunStart Preparation::start_of(const ledger::RunRef& ref,
                                        const std::optional<Company>& company,
                                        const std::optional<sweep::InJob>& in_job) {
  const sweep::Planned& planned = *points_.at(ref.run).point;
  const sweep::Point& point = planned.point;
  const std::filesystem::path run_dir = options_.workspace / options_.project / ref.run;
  sweep::RunSpec spec;
  spec.project = options_.project;
  spec.id = planned.id;
  spec.run = ref.run;
  spec.label = planned.label;
  spec.repeat = ref.repeat;
  spec.repeats = planned.repeats > 0 ? planned.repeats : options_.repeats;
  spec.attempt = ref.attempt;
  spec.derived_from = planned.derived_from;
  spec.user = user_name();
  spec.point = point;
  spec.microbatch = planned.microbatch;
  spec.run_dir = run_dir.string();
  spec.shared_with = company ? company->shared_with : 0;
  spec.unset_env = planned.unset_env;
  spec.in_job = in_job;
  spec.profile = options_.profile;
  for (const cluster::GpuEntry& gpu : cluster_.gpus) {
    if (gpu.name == point.gpu) spec.expect = gpu.expect;
  }
  if (point.gpu != "cpu") {
    const auto known = hardware::peak(options_.catalogue, point.gpu, point.precision);
    if (known.tflops) spec.peak = {.tflops = *known.tflops, .source = known.text};
    if (const auto* entry = hardware::find_by_name(options_.catalogue, point.gpu)) {
      spec.reserve_bytes = sweep::gpu_bytes(entry->reserve_gib);
      spec.expect_match = entry->match;
      spec.expect_not = entry->not_match;
    }
  } else if (company) {
    if (company->running == 0) measure_peaks();
    if (const auto known = peaks_.find(point.threads); known != peaks_.end())
      spec.peak = known->second;
  }
  cluster::RunStart start{.run = ref.run,
                          .attempt = ref.attempt,
                          .run_dir = run_dir,
                          .spec_json = sweep::run_spec_json(spec),
                          .env = cluster_.env,
                          .unset = planned.unset_env};
  if (point.gpu == "cpu") set_waiting(start.env, company.has_value());
  for (const auto& [name, value] : point.env) start.env[name] = value;
  for (const std::string& name : planned.unset_env) start.env.erase(name);
  return start;
}

// Measures the peaks of all wanted thread counts while nothing else runs: once runs overlap there
// is no such moment.
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
  const auto started = points_.find(run);
  if (started == points_.end()) return false;  // of an earlier submit
  const sweep::Point& point = started->second.point->point;
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
