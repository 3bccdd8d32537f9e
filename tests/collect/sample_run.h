// SPDX-License-Identifier: Apache-2.0
// Whole run logs as a trainer would write them, for any point: always the same bytes.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/file.h"
#include "lib/model/model_file.h"
#include "lib/point/identity.h"
#include "lib/point/point.h"
#include "lib/runlog/footer.h"
#include "lib/runlog/record.h"
#include "tests/lib/runlog/log_text.h"

namespace tessera::test {

struct SampleRun {
  sweep::Point point;
  std::string project = "tput";
  std::string label = "7b";
  int repeat = 1;
  int repeats = 1;
  int attempt = 1;
  int restart = 0;
  std::string commit = "ab12cd34";
  // Empty: the run ended before it found a device.
  std::string device = "NVIDIA H100 80GB HBM3";
  std::int64_t device_count = 8;
  std::optional<std::string> gpu = "h100_80gb";  // as the trainer's peak record says
  std::optional<double> peak_tflops = 989.5;
  std::string peak_source = "catalogue: NVIDIA H100, SXM, dense";
  std::optional<std::string> peak_disturbed;
  std::int64_t shared_with = 0;
  bool emulated = false;
  int warmup = 2;
  int measured = 10;
  double step_s = 1.15;
  runlog::Status status = runlog::Status::ok;
  std::optional<runlog::EndedBy> ended_by;  // nothing: what the status says
  std::string reason;
  std::vector<std::string> throttled;
  std::optional<std::int64_t> other_processes;
  std::optional<double> cpu_share;
  bool footer = true;
};

inline sweep::Point sample_point(const std::string& model, std::int64_t seq_len, std::int64_t batch,
                                 std::int64_t microbatch, std::int64_t gpus = 8) {
  sweep::Point point;
  const model::Model found = model::find_model(model, "");
  point.model = found.shape;
  point.lr = found.lr;
  point.seq_len = seq_len;
  point.global_batch = batch;
  point.microbatch_size = microbatch;
  point.gpus = gpus;
  point.gpu = "h100_80gb";
  point.cluster = "hgx";
  return sweep::normalized(point);
}

inline SampleRun sample_7b(const std::string& project = "tput") {
  SampleRun run;
  run.project = project;
  run.point = sample_point("7b", 2048, 48, 6);
  return run;
}

inline std::string id_of(const SampleRun& run) {
  return sweep::point_id(run.point);
}

inline std::string name_of(const SampleRun& run) {
  return sweep::run_name(run.project, sweep::slug(run.label, run.point, run.project), id_of(run),
                         run.repeat);
}

inline runlog::Origin origin_of(const SampleRun& run) {
  return {.project = run.project,
          .run = name_of(run),
          .id = id_of(run),
          .repeat = run.repeat,
          .attempt = run.attempt,
          .restart = run.restart};
}

// Records up to the first step.
inline LogText sample_log_start(const SampleRun& run) {
  using runlog::Json;
  using runlog::Kind;
  const sweep::Point& point = run.point;
  LogText log(origin_of(run));
  log.add(Kind::header, {{"job", "18231"},
                         {"user", "kim"},
                         {"cluster", point.cluster},
                         {"label", run.label},
                         {"repeats", run.repeats},
                         {"gpu_requested", point.gpu},
                         {"point", Json::parse(sweep::point_json(point))}});
  const std::int64_t n_params = model::parameter_count(point.model, point.seq_len);
  log.add(Kind::model, {{"label", run.label},
                        {"d_model", point.model.d_model},
                        {"n_layers", point.model.n_layers},
                        {"n_heads", point.model.n_heads},
                        {"n_kv_heads", point.model.n_kv_heads},
                        {"head_dim", point.model.head_dim},
                        {"ffn", point.model.ffn},
                        {"vocab", point.model.vocab},
                        {"norm", to_text(point.model.norm)},
                        {"activation", to_text(point.model.activation)},
                        {"positions", to_text(point.model.positions)},
                        {"biases", "qkv,out,mlp,norm"},
                        {"tied", point.model.tied},
                        {"n_params", n_params},
                        {"n_trainable", n_params}});
  const std::int64_t a_pass = point.microbatch_size * point.gpus;
  Json effective = {{"gpus", point.gpus},
                    {"nodes", point.nodes},
                    {"seq_len", point.seq_len},
                    {"global_batch", point.global_batch},
                    {"microbatch_size", point.microbatch_size},
                    {"accum", (point.global_batch + a_pass - 1) / a_pass},
                    {"precision", to_text(point.precision)},
                    {"mixed_precision", to_text(point.mixed_precision)},
                    {"sharding_strategy", to_text(point.sharding_strategy)},
                    {"activation_checkpointing", to_text(point.activation_checkpointing)},
                    {"recompute", to_text(point.activation_checkpointing)},
                    {"activation_cpu_offload", point.activation_cpu_offload},
                    {"attention", "flash"},
                    {"shared_with", run.shared_with},
                    {"seed", point.seed},
                    {"data", point.data},
                    {"steps", run.warmup + run.measured},
                    {"warmup", run.warmup},
                    {"deterministic", false},
                    {"emulated", run.emulated}};
  if (point.threads > 0) effective["threads"] = point.threads;
  if (point.fused_gelu)
    effective["fused_gelu"] = true;  // as logs of older trainers, which have none
  log.add(Kind::effective, effective);
  if (run.device.empty()) return log;
  log.add(Kind::host, {{"host", "n03"},
                       {"node", 0},
                       {"devices", {run.device}},
                       {"count", run.device_count},
                       {"driver", "580.95"}});
  log.add(Kind::software, {{"part", 1}, {"trainer", "0.1.0"}, {"commit", run.commit}});
  log.add(Kind::plan, {{"planned_bytes", 61203283968}, {"allocated_bytes", 61203283968}});
  Json peak = Json::object();
  if (run.gpu) peak["gpu"] = *run.gpu;
  if (run.peak_tflops) {
    peak["peak_tflops"] = *run.peak_tflops;
    peak["source"] = run.peak_source;
    if (run.peak_disturbed) peak["disturbed"] = *run.peak_disturbed;
  }
  log.add(Kind::peak, peak);
  return log;
}

inline std::string sample_log(const SampleRun& run) {
  LogText log = sample_log_start(run);
  const bool measured = run.status == runlog::Status::ok || run.status == runlog::Status::partial;
  const std::int64_t tokens = run.point.global_batch * run.point.seq_len;
  if (measured) add_steps(log, run.warmup, run.measured, run.step_s, tokens);
  if (!run.footer) return log.text();
  runlog::Footer footer;
  footer.status = run.status;
  footer.ended_by = run.ended_by.value_or(runlog::ended_by_of(run.status));
  footer.reason = run.reason;
  if (measured) {
    footer.steps = {.warmup = run.warmup,
                    .measured = run.measured,
                    .measured_s = run.step_s * run.measured,
                    .tokens = tokens * run.measured,
                    .data_wait_s = 0.001 * run.measured,
                    .skipped = 0,
                    .median_s = run.step_s,
                    .mean_s = run.step_s,
                    .p5_s = run.step_s,
                    .p95_s = run.step_s,
                    .loss_first = 10.9375,
                    .loss_last = 11 - 0.0625 * (run.warmup + run.measured),
                    .grad_norm_last = 3.5};
  }
  footer.startup_s = 12.1;
  footer.wall_s = 47.8;
  footer.mem_peak_bytes = 61203283968;
  footer.throttled = run.throttled;
  footer.other_processes = run.other_processes;
  footer.cpu_share = run.cpu_share;
  log.end(footer);
  return log.text();
}

// Writes the log where a trainer would: <workspace>/<project>/<run>/log.A.R.0.jsonl. Returns the
// run's folder.
inline std::filesystem::path write_sample(const std::filesystem::path& workspace,
                                          const SampleRun& run, const std::string& text) {
  const auto folder = workspace / run.project / name_of(run);
  make_directories(folder);
  write_file_atomically(folder / runlog::log_file_name(run.attempt, run.restart, 0), text);
  return folder;
}
inline std::filesystem::path write_sample(const std::filesystem::path& workspace,
                                          const SampleRun& run) {
  return write_sample(workspace, run, sample_log(run));
}

}  // namespace tessera::test
