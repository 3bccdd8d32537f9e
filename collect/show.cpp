// SPDX-License-Identifier: Apache-2.0
#include "collect/show.h"

#include <fmt/format.h>

#include <algorithm>

#include "collect/columns.h"
#include "collect/sizes.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/flops/utilization.h"

namespace tessera::collect {

namespace {

// "  name             value   (source)"
std::string entry(std::string_view name, std::string_view value, std::string_view source = {}) {
  if (source.empty()) return fmt::format("  {:<24} {}\n", name, value);
  return fmt::format("  {:<24} {:<36} {}\n", name, value, source);
}

std::string specification(const ShownRun& shown) {
  std::string text = "Specification\n";
  const auto attempt =
      std::ranges::find(shown.run.attempts, shown.outcome.attempt, &Attempt::attempt);
  if (attempt != shown.run.attempts.end() && attempt->specification)
    text += entry("file", attempt->specification->string());
  if (shown.outcome.point) {
    text += entry("point", sweep::point_json(*shown.outcome.point));
  } else {
    text += entry("point", "not known: the log has no header, and there is no specification");
  }
  return text;
}

// One repeat's figures are not those of results.csv, unless it is the one that stands for all.
std::string repeats_of(const ShownRun& shown) {
  const Row& all = shown.aggregate;
  const int repeats = std::max(shown.repeats, all.repeats_asked);
  if (repeats < 2) return {};
  std::string text =
      fmt::format("Repeat {} of {}; {} ended ok. ", shown.repeat, repeats, all.repeats_ok);
  if (all.run == shown.row.run) {
    text += "This one stands for all in results.csv";
  } else {
    text += fmt::format("In results.csv {} stands for all", all.run);
    if (all.tokens_per_s)
      text += fmt::format(", with {} tokens/s", three_digits(*all.tokens_per_s));
  }
  if (all.repeat_spread_pct)
    text += fmt::format("; they differ by {} % of it", two_places(*all.repeat_spread_pct));
  return text + ".\n";
}

std::string attempts(const ShownRun& shown) {
  std::string text = "\nLog\n";
  for (const Attempt& attempt : shown.run.attempts) {
    const bool counts = attempt.log_file == shown.outcome.log_file;
    text += entry(
        fmt::format("attempt {}.{}{}", attempt.attempt, attempt.restart, counts ? " (counts)" : ""),
        attempt.log_file ? attempt.log_file->string() : "no log");
    if (!attempt.log) continue;
    const runlog::Log& log = attempt.log->log;
    text += entry("", fmt::format("{} records, {} steps, {} events", log.records, log.steps.size(),
                                  log.events.size()));
    if (!attempt.log->faults.empty()) text += entry("", attempt.log->faults);
    for (const runlog::Event& event : log.events)
      text += entry("", fmt::format("event {}: {}", event.kind, event.text));
    for (const RankLog& other : attempt.rank_logs) {
      for (const runlog::Event& event : other.log.events) {
        text += entry("", fmt::format("rank {}: event {}: {}", other.log.origin.rank, event.kind,
                                      event.text));
      }
    }
  }
  return text;
}

std::string row_values(Row row, const Row& aggregate) {
  // How many there are is the same for each of them.
  row.repeats_ok = aggregate.repeats_ok;
  row.repeats_asked = aggregate.repeats_asked;
  std::string text = "\nRow of this run\n";
  for (const Column& column : columns()) {
    const std::string value = exact_text(column.value(row));
    if (!value.empty()) text += entry(column.name, value);
  }
  return text;
}

std::string calculation(const Row& row) {
  std::string text = "\nMFU and HFU\n";
  const auto shape = runlog::shape_of(row.facts);
  if (!row.tokens_per_s || !row.tokens_per_s_per_gpu || !shape || !row.flops_per_token) {
    text += entry("none", row.no_mfu.empty() ? "the run measured no step" : row.no_mfu);
    return text;
  }
  Checkpointing checkpointing = Checkpointing::none;
  if (row.facts.ran<&Point::activation_checkpointing>())
    checkpointing = from_text<Checkpointing>(*row.facts.ran<&Point::activation_checkpointing>())
                        .value_or(Checkpointing::none);
  // No term says how much a recompute of some blocks costs.
  if (row.facts.recompute &&
      row.facts.recompute != row.facts.ran<&Point::activation_checkpointing>())
    checkpointing = Checkpointing::selective;
  const auto terms = flops::terms_per_token(*shape, *row.facts.ran<&Point::seq_len>(),
                                            flops::Convention::mosaic, checkpointing);
  double model_flops = 0;
  double hardware_flops = 0;
  for (const flops::Term& term : terms) {
    text += entry(term.name, fmt::format("{:.6g} FLOP/token", term.flops_per_token), term.formula);
    hardware_flops += term.flops_per_token;
    if (!term.recompute) model_flops += term.flops_per_token;
  }
  text += entry("model", fmt::format("{:.6g} FLOP/token", model_flops),
                "sum without what is recomputed (mosaic convention)");
  text += entry("hardware", fmt::format("{:.6g} FLOP/token", hardware_flops), "sum of all");
  text += entry("tokens", fmt::format("{} tokens", row.footer.steps.tokens),
                fmt::format("log: {} measured steps, basis {}", row.footer.steps.measured,
                            row.footer.token_basis));
  text += entry("time", fmt::format("{} s", shortest(row.footer.steps.measured_s)),
                "log: span of the measured steps");
  text +=
      entry("throughput", fmt::format("{} tokens/s", shortest(*row.tokens_per_s)), "tokens / time");
  text += entry("devices", fmt::format("{}", *row.facts.ran<&Point::gpus>()),
                fmt::format("log: {}", row.facts.device_name.value_or("device not named")));
  const double achieved = model_flops * *row.tokens_per_s_per_gpu;
  text += entry("Model TFLOP", fmt::format("{:.6g} TFLOP/s a device", achieved / 1e12),
                "model x throughput / devices");
  if (!row.peak_tflops) return text + entry("MFU, HFU", "none", row.no_mfu);
  text += entry("peak", fmt::format("{} TFLOP/s a device", shortest(*row.peak_tflops)),
                row.peak_source);
  text += entry("MFU", fmt::format("{} %", two_places(*row.mfu_pct)), "Model TFLOP / peak");
  if (row.hfu_pct) {
    const bool mosaic = row.flops_convention.find(';') == std::string::npos;
    text += entry("HFU", fmt::format("{} %", two_places(*row.hfu_pct)),
                  mosaic ? "hardware x throughput / devices / peak"
                         : "recomputed operations of the log, as `hfu_recompute`");
  } else {
    text += entry("HFU", "none", "what was recomputed is not known");
  }
  if (row.mfu_causal_pct) {
    text += entry("MFU, causal attention", fmt::format("{} %", two_places(*row.mfu_causal_pct)),
                  "attention terms halved");
  }
  return text;
}

std::string profile(const runlog::Footer& footer) {
  if (!footer.budget) return {};
  std::string text = "\nProfile: shares of a step behind the measured ones\n";
  const runlog::Budget& budget = *footer.budget;
  for (const auto& [name, share] : {std::pair{"GEMM", budget.gemm},
                                    {"attention", budget.attention},
                                    {"memory-bound", budget.memory_bound},
                                    {"optimizer", budget.optimizer},
                                    {"offload", budget.offload},
                                    {"data wait", budget.data_wait},
                                    {"other", budget.other}}) {
    text += entry(name, fmt::format("{} %", two_places(100 * share)));
  }
  return text;
}

}  // namespace

std::string show(const ShownRun& shown) {
  std::string text = fmt::format("{}: {}", shown.row.run, to_text(shown.row.status));
  if (!shown.row.reason.empty()) text += fmt::format(" ({})", shown.row.reason);
  text += "\n";
  text += repeats_of(shown) + "\n";
  return text + specification(shown) + attempts(shown) + calculation(shown.row) +
         profile(shown.row.footer) + row_values(shown.row, shown.aggregate);
}

}  // namespace tessera::collect
