// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/footer.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/runlog/before_schema_2.h"
#include "lib/runlog/keys.h"
#include "lib/runlog/members.h"
#include "lib/runlog/text.h"

namespace tessera::runlog {

namespace {

constexpr std::size_t kReasonBytes = 220;

// Members of the record with their keys, each in one list for writer and reader.
template <class B, class Visit>
void each_share(B& budget, Visit visit) {
  visit(keys::gemm, budget.gemm);
  visit(keys::attention, budget.attention);
  visit(keys::memory_bound, budget.memory_bound);
  visit(keys::optimizer, budget.optimizer);
  visit(keys::offload, budget.offload);
  visit(keys::data_wait, budget.data_wait);
  visit(keys::other, budget.other);
}

// Visits the sums over the measured steps; they are absent if no step was measured.
template <class F, class Visit>
void each_measured_sum(F& footer, Visit visit) {
  visit(keys::measured_s, footer.steps.measured_s);
  visit(keys::tokens, footer.steps.tokens);
  visit(keys::data_wait_s, footer.steps.data_wait_s);
}

// In `step_s`, of the measured steps.
template <class F, class Visit>
void each_step_time(F& footer, Visit visit) {
  visit(keys::median, footer.steps.median_s);
  visit(keys::mean, footer.steps.mean_s);
  visit(keys::p5, footer.steps.p5_s);
  visit(keys::p95, footer.steps.p95_s);
  visit(keys::max_over_ranks, footer.step_s_max_over_ranks);
}

// Each absent where it is not known.
template <class F, class Visit>
void each_figure(F& footer, Visit visit) {
  visit(keys::loss_first, footer.steps.loss_first);
  visit(keys::loss_last, footer.steps.loss_last);
  visit(keys::grad_norm_last, footer.steps.grad_norm_last);
  visit(keys::startup_s, footer.startup_s);
  visit(keys::wall_s, footer.wall_s);
  visit(keys::mem_peak_bytes, footer.mem_peak_bytes);
  visit(keys::comm_exposed_s, footer.comm_exposed_s);
  visit(keys::sm_clock_min_mhz, footer.sm_clock_min_mhz);
  visit(keys::power_w_mean, footer.power_w_mean);
  visit(keys::temperature_c_max, footer.temperature_c_max);
  visit(keys::issue_s, footer.steps.issue_median_s);
  visit(keys::other_processes, footer.other_processes);
  visit(keys::flops_executed_per_token, footer.flops_executed_per_token);
  visit(keys::flops_recompute_per_token, footer.flops_recompute_per_token);
}

// Four places: a share that was measured has no more.
double rounded(double share) {
  constexpr double kPlaces = 1e4;
  return std::round(share * kPlaces) / kPlaces;
}

Json footer_json(const Footer& footer, std::size_t rows) {
  Json json;
  json[keys::status] = to_text(footer.status);
  json[keys::ended_by] = to_text(footer.ended_by);
  json[keys::reason] = cut_text(footer.reason, kReasonBytes);
  json[keys::exit] = footer.exit_code;
  json[keys::warmup] = footer.steps.warmup;
  json[keys::measured] = footer.steps.measured;
  json[keys::steps_skipped] = footer.steps.skipped;
  json[keys::token_basis] = footer.token_basis;
  if (footer.steps.measured > 0) {
    each_measured_sum(footer, [&](const char* key, auto sum) { json[key] = sum; });
    Json& step_s = json[keys::step_s];
    each_step_time(footer, [&](const char* key, const auto& time) { put(step_s, key, time); });
  }
  each_figure(footer, [&](const char* key, const auto& figure) { put(json, key, figure); });
  if (!footer.throttled.empty()) json[keys::throttled] = footer.throttled;
  if (footer.cpu_share) json[keys::cpu_share] = rounded(*footer.cpu_share);
  if (footer.budget) {
    Json& budget = json[keys::budget];
    each_share(*footer.budget,
               [&](const char* key, double share) { budget[key] = rounded(share); });
  }
  json[keys::rows] = rows;
  return json;
}

// The member if it is there and an object.
const Json* object_in(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_object() ? &*found : nullptr;
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
  take(footer, keys::rows, rows);
  return rows && *rows >= 0 ? rows : std::nullopt;
}

std::optional<Footer> parse_footer(const Json& record) {
  std::optional<std::string> kind, status;
  take(record, keys::t, kind);
  take(record, keys::status, status);
  const auto known = status ? from_text<Status>(*status) : std::nullopt;
  const bool has_row = rows_before(record) || object_in(record, keys::row) != nullptr;
  if (kind != to_text(Kind::footer) || !known || !has_row) return std::nullopt;
  Footer footer;
  footer.status = *known;
  const auto from = [](const Json& object) {
    return [&object](const char* key, auto& member) { take(object, key, member); };
  };
  take(record, keys::reason, footer.reason);
  std::optional<std::string> ended_by;
  take(record, keys::ended_by, ended_by);
  footer.ended_by = ended_by ? from_text<EndedBy>(*ended_by).value_or(EndedBy::unknown)
                             : ended_by_in_words(footer.status, footer.reason);
  take(record, keys::exit, footer.exit_code);
  take(record, keys::warmup, footer.steps.warmup);
  take(record, keys::measured, footer.steps.measured);
  take(record, keys::steps_skipped, footer.steps.skipped);
  take(record, keys::token_basis, footer.token_basis);
  each_measured_sum(footer, from(record));
  if (const Json* step_s = object_in(record, keys::step_s)) each_step_time(footer, from(*step_s));
  each_figure(footer, from(record));
  if (const auto throttled = record.find(keys::throttled);
      throttled != record.end() && throttled->is_array()) {
    for (const Json& reason : *throttled) {
      if (reason.is_string()) footer.throttled.push_back(reason.get<std::string>());
    }
  }
  take(record, keys::cpu_share, footer.cpu_share);
  if (const Json* budget = object_in(record, keys::budget))
    each_share(footer.budget.emplace(), from(*budget));
  take(record, keys::utc, footer.ended_utc);
  return footer;
}

}  // namespace tessera::runlog
