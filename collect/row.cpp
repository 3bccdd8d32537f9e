// SPDX-License-Identifier: Apache-2.0
#include "collect/row.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "collect/sizes.h"
#include "lib/flops/utilization.h"
#include "lib/model/model_file.h"

namespace tessera::collect {

namespace {

constexpr std::int64_t kFewSteps = 5;
constexpr double kTera = 1e12;

// The catalogue entry of the device that ran, and which catalogue it stands in.
const hardware::Gpu* entry_in(const hardware::Catalogue& catalogue, const runlog::Facts& facts) {
  if (facts.device_name) {
    if (const auto* gpu = hardware::match_driver_name(catalogue, *facts.device_name)) return gpu;
  }
  return facts.gpu ? hardware::find_by_name(catalogue, *facts.gpu) : nullptr;
}

// Names the GPU by the first of these that has a name for it: the user's catalogue, the log, the
// built-in catalogue, the driver, the request of the run.
void name_device(Row& row, const Catalogues& catalogues) {
  const runlog::Facts& facts = row.facts;
  if (const auto* gpu = entry_in(catalogues.user, facts)) {
    row.gpu = gpu->name;
  } else if (facts.gpu) {
    row.gpu = *facts.gpu;
  } else if (const auto* known = entry_in(catalogues.built_in, facts)) {
    row.gpu = known->name;
  } else if (facts.device_name) {
    row.gpu = *facts.device_name;
  } else if (facts.gpu_requested) {
    row.gpu = *facts.gpu_requested;
  }
}

// Finds the peak that MFU divides by: as a rule in the user's catalogue, then in the log, then in
// the built-in catalogue. If there is none, row.no_mfu says why.
void find_peak(Row& row, const Catalogues& catalogues) {
  const runlog::Facts& facts = row.facts;
  const auto precision = facts.ran<&Point::precision>()
                             ? from_text<Precision>(*facts.ran<&Point::precision>())
                             : std::optional<Precision>();
  const auto take_from = [&](const hardware::Catalogue& catalogue) {
    const auto* gpu = entry_in(catalogue, facts);
    if (gpu == nullptr || !precision) return false;
    const auto found = hardware::peak(catalogue, gpu->name, *precision);
    if (!found.tflops) {
      row.no_mfu = found.text;
      return false;
    }
    row.peak_tflops = found.tflops;
    row.peak_source = found.text;
    return true;
  };
  if (take_from(catalogues.user)) return;
  // The log's peak is of the GPU that was asked for: older trainers did not look which one it was.
  const auto* found = entry_in(catalogues.built_in, facts);
  if (found != nullptr && facts.gpu_requested && *facts.gpu_requested != found->name &&
      hardware::find_by_name(catalogues.built_in, *facts.gpu_requested) != nullptr &&
      take_from(catalogues.built_in))
    return;
  if (facts.peak_tflops && *facts.peak_tflops > 0) {
    row.peak_tflops = facts.peak_tflops;
    row.peak_source = facts.peak_source.value_or("log");
    return;
  }
  if (take_from(catalogues.built_in) || !row.no_mfu.empty()) return;
  // There is no peak. Say what is missing.
  if (row.gpu == "cpu") {
    row.no_mfu = "the log has no measured peak of the CPU";
  } else if (!facts.ran<&Point::precision>()) {
    row.no_mfu = "the log does not name the precision";
  } else if (!precision) {
    row.no_mfu = fmt::format("precision '{}' is not known", *facts.ran<&Point::precision>());
  } else if (facts.device_name) {
    row.no_mfu = fmt::format("GPU '{}' is not in the catalogue", *facts.device_name);
  } else {
    row.no_mfu = "the log does not name the device";
  }
}

// Computes rates from the measured steps. tokens_per_s counts the tokens of all devices.
void compute_throughput(Row& row) {
  const runlog::StepStatistics& steps = row.footer.steps;
  if (steps.measured <= 0 || steps.tokens <= 0 || !(steps.measured_s > 0)) return;
  const double tokens_per_s = static_cast<double>(steps.tokens) / steps.measured_s;
  row.tokens_per_s = tokens_per_s;
  if (row.facts.ran<&Point::seq_len>() && *row.facts.ran<&Point::seq_len>() > 0)
    row.samples_per_s = tokens_per_s / static_cast<double>(*row.facts.ran<&Point::seq_len>());
  if (row.facts.ran<&Point::gpus>() && *row.facts.ran<&Point::gpus>() > 0)
    row.tokens_per_s_per_gpu = tokens_per_s / static_cast<double>(*row.facts.ran<&Point::gpus>());
  row.data_wait_pct = 100 * steps.data_wait_s / steps.measured_s;
  if (row.footer.cpu_share) row.cpu_share_pct = 100 * *row.footer.cpu_share;
  if (row.footer.comm_exposed_s)
    row.comm_exposed_pct = 100 * *row.footer.comm_exposed_s / steps.measured_s;
}

// Model FLOP/s, MFU and HFU; needs the throughput and the peak.
void compute_utilization(Row& row, const std::optional<model::Shape>& shape) {
  const runlog::Facts& facts = row.facts;
  if (!shape || !facts.ran<&Point::seq_len>() || *facts.ran<&Point::seq_len>() < 1) {
    if (row.tokens_per_s) row.no_mfu = "the log does not name the model's shape";
    return;
  }
  row.flops_convention = to_text(flops::Convention::mosaic);
  row.flops_per_token = flops::model_flops_per_token(*shape, *facts.ran<&Point::seq_len>());
  if (!row.tokens_per_s || !row.tokens_per_s_per_gpu) return;
  const flops::Throughput throughput{.tokens_per_s = *row.tokens_per_s,
                                     .seq_len = *facts.ran<&Point::seq_len>(),
                                     .devices = *facts.ran<&Point::gpus>()};
  const auto forward = flops::forward_flops(*shape, *facts.ran<&Point::seq_len>());
  row.model_tflops = flops::model_flops_per_s(forward, throughput) / kTera;
  if (facts.gemm_measured_tflops && *facts.gemm_measured_tflops > 0)
    row.gemm_pct = 100 * *row.model_tflops / *facts.gemm_measured_tflops;
  if (!row.peak_tflops) return;
  row.no_mfu.clear();
  const double peak = *row.peak_tflops * kTera;
  row.mfu_pct = 100 * flops::mfu(forward, throughput, peak);
  const auto causal =
      flops::forward_flops(*shape, *facts.ran<&Point::seq_len>(), flops::Convention::causal);
  row.mfu_causal_pct = 100 * flops::mfu(causal, throughput, peak);
  // HFU by the operations of a token that the footer counts.
  const auto of_peak = [&](const std::optional<double>& flops_per_token) -> std::optional<double> {
    if (!flops_per_token) return std::nullopt;
    return 100 * *flops_per_token * *row.tokens_per_s_per_gpu / peak;
  };
  row.hfu_executed_pct = of_peak(row.footer.flops_executed_per_token);
  row.hfu_recompute_pct = of_peak(row.footer.flops_recompute_per_token);
  // HFU by the convention, which knows the checkpointing mode alone.
  const auto checkpointing =
      facts.ran<&Point::activation_checkpointing>()
          ? from_text<Checkpointing>(*facts.ran<&Point::activation_checkpointing>())
          : std::nullopt;
  if (!checkpointing) return;
  // The convention does not know a recompute of some blocks only.
  const bool is_whole =
      !facts.recompute || *facts.recompute == *facts.ran<&Point::activation_checkpointing>();
  const auto hfu =
      is_whole ? flops::hfu_mosaic(forward, throughput, peak, *checkpointing) : std::nullopt;
  if (hfu) {
    row.hfu_pct = 100 * *hfu;
  } else {
    row.hfu_pct = row.hfu_recompute_pct;
    row.flops_convention += "; HFU by recomputed operations";
  }
}

// A shape that another program sealed may be anything: what would overflow is no shape.
bool possible_shape(const std::optional<model::Shape>& shape, std::optional<std::int64_t> seq_len) {
  if (!shape) return false;
  const auto dimension = [](std::int64_t value) { return value >= 1 && value <= (1 << 26); };
  if (!dimension(shape->d_model) || !dimension(shape->n_layers) || !dimension(shape->n_heads) ||
      !dimension(shape->n_kv_heads) || !dimension(shape->head_dim) || !dimension(shape->ffn) ||
      !dimension(shape->vocab) || (seq_len && !dimension(*seq_len))) {
    return false;
  }
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double width = 4 * real(shape->n_heads) * real(shape->head_dim) + 3 * real(shape->ffn) + 16;
  const double vocab = 2 * (real(shape->vocab) + real(seq_len.value_or(1)));
  return real(shape->d_model) * (real(shape->n_layers) * width + vocab) < 1e18 &&
         !model::contradiction(*shape);
}

// Sets the marks that hold, in the order of Mark.
void set_marks(Row& row, const RunOutcome& outcome) {
  const auto mark = [&](bool holds, Mark which) {
    if (holds) row.marks.push_back(which);
  };
  const bool measured = outcome.outcome.measured();
  mark(measured && (row.status == runlog::Status::partial || row.footer.steps.measured < kFewSteps),
       Mark::partial);
  mark(row.has_company() || (row.peak_tflops && peak_is_disturbed(row.facts)), Mark::shared);
  mark(measured && row.footer.cpu_share.value_or(1) < runlog::kBusyShare, Mark::busy);
  mark(!row.footer.throttled.empty(), Mark::throttled);
  mark(row.facts.emulated.value_or(false), Mark::emulated);
  mark(outcome.stale, Mark::stale);
  mark(row.mfu_pct.value_or(0) > 100 || row.hfu_pct.value_or(0) > 100, Mark::above_peak);
}

}  // namespace

const model::Shape* built_in_shape(const std::string& name) {
  static const std::map<std::string, model::Shape> shapes = [] {
    std::map<std::string, model::Shape> read;
    for (const std::string& known : model::built_in_models())
      read[known] = model::find_model(known, "").shape;
    return read;
  }();
  const auto found = shapes.find(name);
  return found == shapes.end() ? nullptr : &found->second;
}

bool peak_is_disturbed(const runlog::Facts& facts) {
  return facts.peak_disturbed.has_value();
}

std::string model_name(const std::optional<std::string>& label,
                       const std::optional<model::Shape>& shape,
                       const std::optional<std::int64_t>& n_params) {
  if (!shape) return {};
  if (label) {
    std::string name = *label;
    if (name.ends_with(".yaml")) name.resize(name.size() - 5);
    const model::Shape* built_in = built_in_shape(name);
    if (built_in != nullptr && *built_in == *shape) return name;
  }
  return n_params ? fmt::format("custom({})", short_count(*n_params)) : "custom";
}

Row make_row(const Run& run, const RunOutcome& outcome, const Catalogues& catalogues) {
  Row row;
  row.status = outcome.outcome.status;
  row.reason = outcome.outcome.reason;
  row.project = run.project;
  row.run = run.run;
  row.id = run.id;
  row.facts = outcome.outcome.facts;
  row.footer = outcome.outcome.footer;
  row.point = outcome.point;
  row.attempt = outcome.attempt;
  row.attempts = outcome.attempts;
  row.repeats_ok = row.status == runlog::Status::ok ? 1 : 0;
  row.repeats_asked = static_cast<int>(
      std::clamp<std::int64_t>(row.facts.repeats.value_or(1), run.repeat, 1000000));
  row.queue_s = outcome.queue_s;
  if (outcome.log_file) row.log = outcome.log_file->string();
  if (outcome.reader != nullptr) {
    row.engine = outcome.reader->engine;
    row.reader = outcome.reader->name;
  }
  if (!row.facts.job && !outcome.job.empty()) row.facts.job = outcome.job;
  // Name the model. A shape that is not possible counts as unknown.
  const auto shape = runlog::shape_of(row.facts);
  const bool possible = possible_shape(shape, row.facts.ran<&Point::seq_len>());
  row.model = model_name(row.facts.label, possible ? shape : std::nullopt, row.facts.n_params);
  if (row.model.empty() && row.facts.label && built_in_shape(*row.facts.label) != nullptr)
    row.model = *row.facts.label;
  // Nothing ran that could be of another shape than its name says.
  if (row.model.empty() && row.facts.label && row.attempts == 0) row.model = *row.facts.label;
  if (possible) row.model_size = static_cast<double>(model::parameter_count(*shape, 1));
  std::int64_t batch_tokens = 0;
  if (row.facts.ran<&Point::global_batch>() && row.facts.ran<&Point::seq_len>() &&
      !__builtin_mul_overflow(*row.facts.ran<&Point::global_batch>(),
                              *row.facts.ran<&Point::seq_len>(), &batch_tokens)) {
    row.global_batch_tokens = batch_tokens;
  }
  name_device(row, catalogues);
  // Only a run with a result has figures.
  if (!outcome.outcome.measured()) {
    // A run that ended otherwise may have measured steps, but they are no result.
    const runlog::StepStatistics told = row.footer.steps;
    row.footer.steps = {.loss_first = told.loss_first,
                        .loss_last = told.loss_last,
                        .grad_norm_last = told.grad_norm_last};
    row.footer.step_s_max_over_ranks.reset();
  } else {
    find_peak(row, catalogues);
    compute_throughput(row);
    compute_utilization(row, possible ? shape : std::nullopt);
    if (!row.no_mfu.empty()) {
      row.reason += fmt::format("{}no MFU: {}", row.reason.empty() ? "" : "; ", row.no_mfu);
    }
  }
  // GPU-hours count the run's whole time, not only its measured steps.
  const bool is_cpu = row.gpu == "cpu";
  if (!is_cpu && row.footer.wall_s && row.facts.ran<&Point::gpus>())
    row.gpu_hours = *row.footer.wall_s * static_cast<double>(*row.facts.ran<&Point::gpus>()) / 3600;
  set_marks(row, outcome);
  return row;
}

}  // namespace tessera::collect
