#include "lib/runlog/footer.h"

#include <cmath>

#include "lib/runlog/members.h"
#include "lib/runlog/text.h"

namespace tessera::runlog {

namespace {

constexpr std::size_t kReasonBytes = 220;

// Every member with its key; the one list of them.
template <class B, class Visit>
void each_share(B& budget, Visit visit) {
  visit("gemm", budget.gemm);
  visit("attention", budget.attention);
  visit("memory_bound", budget.memory_bound);
  visit("optimizer", budget.optimizer);
  visit("offload", budget.offload);
  visit("data_wait", budget.data_wait);
  visit("other", budget.other);
}

// Four places: a share that was measured has no more.
double rounded(double share) {
  constexpr double kPlaces = 1e4;
  return std::round(share * kPlaces) / kPlaces;
}

Json footer_json(const Footer& footer, std::size_t rows) {
  Json json;
  json["status"] = to_text(footer.status);
  json["reason"] = cut_text(footer.reason, kReasonBytes);
  json["exit"] = footer.exit_code;
  json["warmup"] = footer.steps.warmup;
  json["measured"] = footer.steps.measured;
  if (footer.steps.measured > 0) {
    json["measured_s"] = footer.steps.measured_s;
    Json& step_s = json["step_s"];
    put(step_s, "median", footer.steps.median_s);
    put(step_s, "mean", footer.steps.mean_s);
    put(step_s, "p5", footer.steps.p5_s);
    put(step_s, "p95", footer.steps.p95_s);
    put(step_s, "max_over_ranks", footer.step_s_max_over_ranks);
    json["tokens"] = footer.steps.tokens;
    json["data_wait_s"] = footer.steps.data_wait_s;
  }
  json["token_basis"] = footer.token_basis;
  put(json, "loss_first", footer.steps.loss_first);
  put(json, "loss_last", footer.steps.loss_last);
  put(json, "grad_norm_last", footer.steps.grad_norm_last);
  json["steps_skipped"] = footer.steps.skipped;
  put(json, "startup_s", footer.startup_s);
  put(json, "wall_s", footer.wall_s);
  put(json, "mem_peak_bytes", footer.mem_peak_bytes);
  put(json, "comm_exposed_s", footer.comm_exposed_s);
  put(json, "sm_clock_min_mhz", footer.sm_clock_min_mhz);
  put(json, "power_w_mean", footer.power_w_mean);
  put(json, "temperature_c_max", footer.temperature_c_max);
  put(json, "issue_s", footer.steps.issue_median_s);
  if (!footer.throttled.empty()) json["throttled"] = footer.throttled;
  put(json, "other_processes", footer.other_processes);
  put(json, "flops_executed_per_token", footer.flops_executed_per_token);
  put(json, "flops_recompute_per_token", footer.flops_recompute_per_token);
  if (footer.cpu_share) json["cpu_share"] = rounded(*footer.cpu_share);
  if (footer.budget) {
    Json& budget = json["budget"];
    each_share(*footer.budget,
               [&](const char* key, double share) { budget[key] = rounded(share); });
  }
  json["rows"] = rows;
  return json;
}

}  // namespace

std::vector<std::pair<Kind, Json>> last_records(const Footer& footer, const Facts& facts) {
  std::vector<std::pair<Kind, Json>> records;
  for (Json& row : row_records(facts)) records.emplace_back(Kind::row, std::move(row));
  const std::size_t rows = records.size();
  records.emplace_back(Kind::footer, footer_json(footer, rows));
  return records;
}

std::optional<std::int64_t> rows_before(const Json& footer) {
  std::optional<std::int64_t> rows;
  take(footer, "rows", rows);
  return rows && *rows >= 0 ? rows : std::nullopt;
}

std::optional<Footer> parse_footer(const Json& record) {
  const auto kind = record.find("t");
  const auto status = record.find("status");
  const auto row = record.find("row");
  const bool has_row = rows_before(record) || (row != record.end() && row->is_object());
  if (kind == record.end() || *kind != "footer" || status == record.end() || !status->is_string() ||
      !has_row) {
    return std::nullopt;
  }
  const auto known = from_text<Status>(status->get<std::string>());
  if (!known) return std::nullopt;
  Footer footer;
  footer.status = *known;
  take(record, "reason", footer.reason);
  take(record, "exit", footer.exit_code);
  take(record, "warmup", footer.steps.warmup);
  take(record, "measured", footer.steps.measured);
  take(record, "measured_s", footer.steps.measured_s);
  if (const auto step_s = record.find("step_s"); step_s != record.end() && step_s->is_object()) {
    take(*step_s, "median", footer.steps.median_s);
    take(*step_s, "mean", footer.steps.mean_s);
    take(*step_s, "p5", footer.steps.p5_s);
    take(*step_s, "p95", footer.steps.p95_s);
    take(*step_s, "max_over_ranks", footer.step_s_max_over_ranks);
  }
  take(record, "tokens", footer.steps.tokens);
  take(record, "data_wait_s", footer.steps.data_wait_s);
  take(record, "token_basis", footer.token_basis);
  take(record, "loss_first", footer.steps.loss_first);
  take(record, "loss_last", footer.steps.loss_last);
  take(record, "grad_norm_last", footer.steps.grad_norm_last);
  take(record, "steps_skipped", footer.steps.skipped);
  take(record, "startup_s", footer.startup_s);
  take(record, "wall_s", footer.wall_s);
  take(record, "mem_peak_bytes", footer.mem_peak_bytes);
  take(record, "comm_exposed_s", footer.comm_exposed_s);
  take(record, "sm_clock_min_mhz", footer.sm_clock_min_mhz);
  take(record, "power_w_mean", footer.power_w_mean);
  take(record, "temperature_c_max", footer.temperature_c_max);
  take(record, "issue_s", footer.steps.issue_median_s);
  if (const auto throttled = record.find("throttled");
      throttled != record.end() && throttled->is_array()) {
    for (const Json& reason : *throttled) {
      if (reason.is_string()) footer.throttled.push_back(reason.get<std::string>());
    }
  }
  take(record, "other_processes", footer.other_processes);
  take(record, "flops_executed_per_token", footer.flops_executed_per_token);
  take(record, "flops_recompute_per_token", footer.flops_recompute_per_token);
  take(record, "cpu_share", footer.cpu_share);
  if (const auto budget = record.find("budget"); budget != record.end() && budget->is_object()) {
    each_share(footer.budget.emplace(),
               [&](const char* key, double& share) { take(*budget, key, share); });
  }
  take(record, "utc", footer.ended_utc);
  return footer;
}

}  // namespace tessera::runlog
