// SPDX-License-Identifier: Apache-2.0
#include "collect/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "collect/sizes.h"
#include "lib/base/numbers.h"
#include "lib/runlog/keys.h"

namespace tessera::collect {

namespace {

// Returns the value as a cell; an empty cell if it is absent or not finite.
template <class T>
Cell cell(const std::optional<T>& value) {
  if (!value) return {};
  if constexpr (std::is_same_v<T, double>) {
    if (!std::isfinite(*value)) return {};
  }
  return *value;
}

Cell cell(const std::string& text) {
  if (text.empty()) return {};
  return text;
}

// A figure that only a run with measured steps has.
template <class T>
Cell if_measured(const Row& row, const T& value) {
  if (row.footer.steps.measured <= 0) return {};
  return value;
}

// Returns whether any activations are computed again. Empty if the log does not say.
Cell checkpointed(const Row& row) {
  if (!row.facts.ran<&Point::activation_checkpointing>()) return {};
  return *row.facts.ran<&Point::activation_checkpointing>() != "none";
}

// Returns the marks as words: "partial shared".
Cell marks_of(const Row& row) {
  std::vector<std::string_view> names;
  for (const Mark mark : row.marks) names.push_back(to_text(mark));
  return cell(fmt::format("{}", fmt::join(names, " ")));
}

// Returns the point's environment variables: "NCCL_PROTO=LL NCCL_ALGO=Ring".
Cell env_cell(const Row& row) {
  if (!row.facts.env) return {};
  std::string text;
  for (const auto& [name, value] : *row.facts.env)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return cell(text);
}

// Returns what of the cluster file is part of the point: "env.NCCL_IB_HCA=mlx5".
Cell identity_cell(const Row& row) {
  if (!row.point) return {};
  std::string text;
  for (const auto& [name, value] : row.point->identity)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return cell(text);
}

// What is computed again in the backward pass.
Cell recompute_of(const Row& row) {
  return cell(row.facts.recompute ? row.facts.recompute
                                  : row.facts.ran<&Point::activation_checkpointing>());
}

using R = const Row&;
namespace keys = runlog::keys;

// A setting as it ran, as it was asked for, and where the log says that too.
template <auto member>
Cell ran(R row) {
  return cell(row.facts.ran<member>());
}
template <auto member>
Cell asked(R row) {
  if (!row.point) return {};
  const auto& value = (*row.point).*member;
  using T = std::decay_t<decltype(value)>;
  if constexpr (std::is_enum_v<T>) {
    return std::string(to_text(value));
  } else {
    const std::string_view zero = sweep::field_of<member>().zero;
    if (!zero.empty() && value == T{}) return std::string(zero);
    return value;
  }
}
template <auto member>
Cell asked_or_logged(R row) {
  return row.point ? asked<member>(row) : ran<member>(row);
}

constexpr Column kColumns[] = {
    // The published columns.
    {"Model", [](R r) { return cell(r.model); }},
    {"SeqLen (T)", ran<&Point::seq_len>},
    {"# GPUs", ran<&Point::gpus>},
    {"GPU", [](R r) { return cell(r.gpu); }},
    {"MFU", [](R r) { return cell(r.mfu_pct); }, Style::percent},
    {"HFU", [](R r) { return cell(r.hfu_pct); }, Style::percent},
    {"Model TFLOP", [](R r) { return cell(r.model_tflops); }, Style::rate},
    {"MicroBatchSize", ran<&Point::microbatch_size>},
    {"GradAccum", [](R r) { return cell(r.facts.accum); }},
    {"GlobalBatchSize", ran<&Point::global_batch>},
    {"Throughput (S/s)", [](R r) { return cell(r.samples_per_s); }, Style::rate},
    {"Throughput (T/s)", [](R r) { return cell(r.tokens_per_s); }, Style::rate},
    {"Throughput (T/s/GPU)", [](R r) { return cell(r.tokens_per_s_per_gpu); }, Style::rate},
    {"GlobalBatchSize (T)", [](R r) { return cell(r.global_batch_tokens); }},
    {"Precision", ran<&Point::precision>},
    {"MP Mode", ran<&Point::mixed_precision>},
    {"Sharding Strategy", ran<&Point::sharding_strategy>},
    {"Activation Checkpointing", checkpointed},
    {"Activation CPUOffload", ran<&Point::activation_cpu_offload>},
    {"NumParams", [](R r) { return cell(r.facts.n_params); }},

    // Which run it is, and how it ended.
    {keys::status, [](R r) { return cell(std::string(to_text(r.status))); }},
    {keys::reason, [](R r) { return cell(r.reason); }},
    {keys::project, [](R r) { return cell(r.project); }},
    {keys::run, [](R r) { return cell(r.run); }},
    {keys::id, [](R r) { return cell(r.id); }},
    {keys::derived_from, [](R r) { return cell(r.facts.derived_from); }},
    {keys::user, [](R r) { return cell(r.facts.user); }},
    {keys::cluster, [](R r) { return cell(r.facts.cluster); }},
    {keys::job, [](R r) { return cell(r.facts.job); }},
    {"attempt", [](R r) { return r.attempts > 0 ? Cell(std::int64_t{r.attempt}) : Cell(); }},
    {"attempts", [](R r) { return Cell(std::int64_t{r.attempts}); }},
    {"repeats_ok", [](R r) { return Cell(std::int64_t{r.repeats_ok}); }},
    {"repeats_asked", [](R r) { return Cell(std::int64_t{r.repeats_asked}); }},
    {"marks", marks_of},

    // The measured steps. Times are in seconds.
    {"steps_warmup", [](R r) { return if_measured(r, r.footer.steps.warmup); }},
    {"steps_measured", [](R r) { return if_measured(r, r.footer.steps.measured); }},
    {keys::measured_s, [](R r) { return if_measured(r, r.footer.steps.measured_s); }},
    {"step_s_median", [](R r) { return cell(r.footer.steps.median_s); }},
    {"step_s_mean", [](R r) { return cell(r.footer.steps.mean_s); }},
    {"step_s_p5", [](R r) { return cell(r.footer.steps.p5_s); }},
    {"step_s_p95", [](R r) { return cell(r.footer.steps.p95_s); }},
    {"step_s_max_over_ranks", [](R r) { return cell(r.footer.step_s_max_over_ranks); }},
    {"repeat_spread_pct", [](R r) { return cell(r.repeat_spread_pct); }},
    {keys::token_basis, [](R r) { return if_measured(r, r.footer.token_basis); }},

    // FLOPs, peaks and utilization.
    {"flops_convention", [](R r) { return cell(r.flops_convention); }},
    {"flops_per_token", [](R r) { return cell(r.flops_per_token); }},
    {keys::peak_tflops, [](R r) { return cell(r.peak_tflops); }},
    {keys::peak_source, [](R r) { return cell(r.peak_source); }},
    {"mfu_causal", [](R r) { return cell(r.mfu_causal_pct); }},
    {"hfu_executed", [](R r) { return cell(r.hfu_executed_pct); }},
    {"hfu_recompute", [](R r) { return cell(r.hfu_recompute_pct); }},
    {keys::gemm_measured_tflops, [](R r) { return cell(r.facts.gemm_measured_tflops); }},
    {"gemm_pct", [](R r) { return cell(r.gemm_pct); }},

    // Memory, waiting and time.
    {keys::mem_peak_bytes, [](R r) { return cell(r.footer.mem_peak_bytes); }},
    {"mem_planned_bytes", [](R r) { return cell(r.facts.planned_bytes); }},
    {"data_wait_pct", [](R r) { return cell(r.data_wait_pct); }},
    {"comm_exposed_pct", [](R r) { return cell(r.comm_exposed_pct); }},
    {"queue_s", [](R r) { return cell(r.queue_s); }},
    {keys::startup_s, [](R r) { return cell(r.footer.startup_s); }},
    {keys::wall_s, [](R r) { return cell(r.footer.wall_s); }},
    {"gpu_hours", [](R r) { return cell(r.gpu_hours); }},

    // Losses, and settings as they ran.
    {keys::loss_first, [](R r) { return cell(r.footer.steps.loss_first); }},
    {keys::loss_last, [](R r) { return cell(r.footer.steps.loss_last); }},
    {keys::grad_norm_last, [](R r) { return cell(r.footer.steps.grad_norm_last); }},
    {keys::steps_skipped, [](R r) { return if_measured(r, r.footer.steps.skipped); }},
    {"seed", ran<&Point::seed>},
    {"data", ran<&Point::data>},
    {"attention", ran<&Point::attention>},
    {keys::recompute, recompute_of},
    {"hybrid_group", ran<&Point::hybrid_group>},
    {"threads", ran<&Point::threads>},

    // The model's shape.
    {keys::d_model, [](R r) { return cell(r.facts.d_model); }},
    {keys::n_layers, [](R r) { return cell(r.facts.n_layers); }},
    {keys::n_heads, [](R r) { return cell(r.facts.n_heads); }},
    {keys::n_kv_heads, [](R r) { return cell(r.facts.n_kv_heads); }},
    {keys::vocab, [](R r) { return cell(r.facts.vocab); }},
    {keys::n_trainable, [](R r) { return cell(r.facts.n_trainable); }},

    // Device, driver and libraries.
    {keys::gpu_requested, [](R r) { return cell(r.facts.gpu_requested); }},
    {keys::device_name, [](R r) { return cell(r.facts.device_name); }},
    {"nodes", ran<&Point::nodes>},
    {keys::hosts, [](R r) { return cell(r.facts.hosts); }},
    {keys::sm_clock_min_mhz, [](R r) { return cell(r.footer.sm_clock_min_mhz); }},
    {keys::power_w_mean, [](R r) { return cell(r.footer.power_w_mean); }},
    {keys::throttled,
     [](R r) { return cell(fmt::format("{}", fmt::join(r.footer.throttled, " "))); }},
    {keys::driver, [](R r) { return cell(r.facts.driver); }},
    {keys::cuda, [](R r) { return cell(r.facts.cuda); }},
    {keys::cublaslt, [](R r) { return cell(r.facts.cublaslt); }},
    {keys::cudnn, [](R r) { return cell(r.facts.cudnn); }},
    {keys::nccl, [](R r) { return cell(r.facts.nccl); }},

    // The trainer, its environment and its log.
    {keys::trainer, [](R r) { return cell(r.facts.trainer); }},
    {keys::commit, [](R r) { return cell(r.facts.commit); }},
    {keys::image, [](R r) { return cell(r.facts.image); }},
    {keys::env, env_cell},
    {"engine", [](R r) { return cell(r.engine); }},
    {"reader", [](R r) { return cell(r.reader); }},
    {keys::started_utc, [](R r) { return cell(r.facts.started_utc); }},
    {"ended_utc", [](R r) { return cell(r.footer.ended_utc); }},
    {"log", [](R r) { return cell(r.log); }},

    // What was asked for, and the rest of the shape.
    {keys::label, [](R r) { return cell(r.facts.label); }},
    {"microbatch_asked", asked<&Point::microbatch_size>},
    {"steps_asked", asked_or_logged<&Point::steps>},
    {"warmup_asked", asked_or_logged<&Point::warmup>},
    {"exact_steps", asked<&Point::exact_steps>},
    {"deterministic", ran<&Point::deterministic>},
    {"deterministic_asked", asked<&Point::deterministic>},
    {"identity", identity_cell},
    {keys::head_dim, [](R r) { return cell(r.facts.head_dim); }},
    {keys::ffn, [](R r) { return cell(r.facts.ffn); }},
    {keys::norm, [](R r) { return cell(r.facts.norm); }},
    {keys::positions, [](R r) { return cell(r.facts.positions); }},
    {keys::activation, [](R r) { return cell(r.facts.activation); }},
    {keys::biases, [](R r) { return cell(r.facts.biases); }},
    {keys::tied, [](R r) { return cell(r.facts.tied); }},
    {"cpu_share_pct", [](R r) { return cell(r.cpu_share_pct); }},
    {"fused_gelu", ran<&Point::fused_gelu>},
    {"fused_gelu_asked", asked<&Point::fused_gelu>},
};

// A setting that is newer than the list above has its columns behind it: what ran and, where the
// trainer decides that, what was asked for. Whoever adds another column writes them into the list
// first, so that no column changes its place.
template <std::size_t I>
void add_setting(std::vector<Column>& columns) {
  constexpr const auto& field = std::get<I>(sweep::kFields);
  if constexpr (field.written == sweep::Written::if_set && field.logged != sweep::Logged::no) {
    static const std::string asked_name = fmt::format("{}_asked", field.key);
    const auto add = [&](std::string_view name, Cell (*value)(R)) {
      if (std::ranges::find(columns, name, &Column::name) == columns.end())
        columns.push_back({name, value});
    };
    add(field.key, ran<field.member>);
    if (field.logged == sweep::Logged::decided) add(asked_name, asked<field.member>);
  }
}

}  // namespace

std::span<const Column> columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> columns(std::begin(kColumns), std::end(kColumns));
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (add_setting<I>(columns), ...);
    }(std::make_index_sequence<sweep::kFieldCount>());
    return columns;
  }();
  return all;
}

std::string exact_text(const Cell& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return {};
        } else if constexpr (std::is_same_v<T, bool>) {
          return held ? "True" : "False";
        } else if constexpr (std::is_same_v<T, double>) {
          return shortest(held);
        } else {
          return fmt::format("{}", held);
        }
      },
      value);
}

std::string short_text(const Cell& value, Style style) {
  if (const auto* number = std::get_if<double>(&value))
    return style == Style::percent ? two_places(*number) : three_digits(*number);
  return exact_text(value);
}

std::string published_text(const Cell& value, Style style) {
  const auto* number = std::get_if<double>(&value);
  if (number == nullptr) return exact_text(value);
  if (style == Style::rate) return fmt::format("{:.0f}", std::floor(*number));
  if (style != Style::percent) return exact_text(value);
  std::string text = two_places(*number);
  if (text.ends_with('0')) text.pop_back();
  return text;
}

}  // namespace tessera::collect
