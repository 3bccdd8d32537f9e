// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/footer.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lib/base/crc32.h"
#include "tests/lib/runlog/samples.h"

using namespace tessera;
using namespace tessera::runlog;

namespace {

// The last records of a log, as JSON gives them back.
std::vector<Json> records_of(const Footer& footer, const Facts& facts) {
  std::vector<Json> records;
  for (const auto& [kind, fields] : last_records(footer, facts)) {
    Json record = fields;
    record["t"] = to_text(kind);
    if (kind == Kind::footer) {
      record["project"] = *facts.project;
      record["run"] = *facts.run;
    }
    record["id"] = *facts.id;
    record["rep"] = *facts.rep;
    record["try"] = *facts.attempt;
    record["restart"] = *facts.restart;
    records.push_back(Json::parse(record.dump()));
  }
  return records;
}

Json footer_of(const Footer& footer, const Facts& facts = test::sample_facts()) {
  return records_of(footer, facts).back();
}

Facts row_of(const std::vector<Json>& records) {
  Facts facts;
  for (const Json& record : records) take_row(facts, record);
  return facts;
}

}  // namespace

TEST_CASE("the last records alone give back every fact and figure") {
  const Facts facts = test::sample_facts();
  const auto records = records_of(test::sample_footer(), facts);
  REQUIRE(records.size() == 2);
  CHECK(rows_before(records[1]) == 1);
  CHECK(row_of(records) == facts);
  const auto footer = parse_footer(records[1]);
  REQUIRE(footer.has_value());
  CHECK(footer->status == Status::ok);
  CHECK(footer->ended_by == EndedBy::completed);
  CHECK(footer->steps.measured_s == 23.05);
  CHECK(footer->steps.median_s == 1.1519);
  CHECK(footer->steps.tokens == 1966080);
  CHECK(footer->mem_peak_bytes == 61203283968);
  CHECK_FALSE(footer->power_w_mean.has_value());
  CHECK(shape_of(facts)->ffn == 16384);
  // Logs of before these two were written.
  CHECK(shape_of(facts)->norm_eps == 1e-5);
  CHECK(shape_of(facts)->rope_theta == 1e4);
}

TEST_CASE("a row too long for one record is in several") {
  Facts facts = test::sample_facts();
  facts.biases = std::string(2000, 'b');  // not cut
  const auto records = records_of(test::sample_footer(), facts);
  REQUIRE(records.size() == 3);
  CHECK(records[0]["part"] == 1);
  CHECK(records[1]["part"] == 2);
  CHECK(rows_before(records[2]) == 2);
  CHECK(row_of(records) == facts);
}

TEST_CASE("shares are written with four places and read back") {
  Footer footer = test::sample_footer();
  footer.cpu_share = 0.87654321;
  footer.budget = {.gemm = 0.61234,
                   .attention = 0.1,
                   .memory_bound = 0.2,
                   .optimizer = 0.05,
                   .offload = 0,
                   .data_wait = 0.03,
                   .other = 0.00766};
  const Json json = footer_of(footer);
  CHECK(json["cpu_share"].dump() == "0.8765");
  CHECK(json["budget"].dump() ==
        R"({"gemm":0.6123,"attention":0.1,"memory_bound":0.2,"optimizer":0.05,"offload":0.0,)"
        R"("data_wait":0.03,"other":0.0077})");
  const auto parsed = parse_footer(json);
  REQUIRE(parsed.has_value());
  CHECK(parsed->cpu_share == 0.8765);
  CHECK(parsed->budget->gemm == 0.6123);
  CHECK(parsed->budget->other == 0.0077);
  CHECK_FALSE(parse_footer(footer_of(test::sample_footer()))->budget.has_value());
}

TEST_CASE("what is not known is absent, never 0 or -1") {
  const auto records = last_records({.status = Status::oom, .reason = "device memory"}, Facts{});
  REQUIRE(records.size() == 1);  // no row of nothing
  const Json& json = records[0].second;
  for (const char* key : {"measured_s", "step_s", "tokens", "loss_first", "wall_s",
                          "mem_peak_bytes", "power_w_mean"}) {
    CAPTURE(key);
    CHECK_FALSE(json.contains(key));
  }
  CHECK(json["rows"] == 0);
}

TEST_CASE("members of a wrong type and unknown statuses are not believed") {
  auto records = records_of(test::sample_footer(), test::sample_facts());
  records[0]["row"]["n_params"] = "many";
  records[1]["measured_s"] = "fast";
  CHECK_FALSE(row_of(records).n_params.has_value());
  const auto parsed = parse_footer(records[1]);
  REQUIRE(parsed.has_value());
  CHECK(parsed->steps.measured_s == 0);
  records[1]["status"] = "splendid";
  CHECK_FALSE(parse_footer(records[1]).has_value());
  records[1]["status"] = "ok";
  records[1].erase("rows");
  CHECK_FALSE(parse_footer(records[1]).has_value());
  // The row of schema 1 is in its footer.
  records[1]["row"] = {{"gpus", 8}};
  CHECK(parse_footer(records[1]).has_value());
  CHECK_FALSE(rows_before(records[1]).has_value());
}

TEST_CASE("what ended a run is typed; only a footer that lacks it is asked for its words") {
  Json record = footer_of({.status = Status::partial, .ended_by = EndedBy::time_limit});
  CHECK(record["ended_by"] == "time-limit");
  record["reason"] = "interrupted";
  CHECK(parse_footer(record)->ended_by == EndedBy::time_limit);
  record["ended_by"] = "a later word";
  CHECK(parse_footer(record)->ended_by == EndedBy::unknown);
  record.erase("ended_by");
  const auto of_words = [&](const char* status, const char* reason) {
    record["status"] = status;
    record["reason"] = reason;
    return parse_footer(record)->ended_by;
  };
  CHECK(of_words("partial", "interrupted") == EndedBy::interrupted);
  CHECK(of_words("failed", "interrupted by signal 15") == EndedBy::interrupted);
  CHECK(of_words("partial", "time limit near") == EndedBy::time_limit);
  CHECK(of_words("partial", "cancelled by its user") == EndedBy::cancelled);
  CHECK(of_words("partial", "") == EndedBy::unknown);
  CHECK(of_words("nan", "loss at step 3") == EndedBy::not_finite);
  CHECK(of_words("host-oom", "memory plan") == EndedBy::out_of_memory);
  CHECK(of_words("start-fail", "") == EndedBy::error);
  CHECK(of_words("ok", "") == EndedBy::completed);
}

TEST_CASE("the largest footer leaves room in a message of 4,096 bytes, the largest row fits") {
  const std::string wide(5000, 'W');
  constexpr double kLong = -1.2345678901234567e-300;
  constexpr std::int64_t kLargest = std::int64_t{1} << 40;
  Facts facts = test::sample_facts();
  for (auto* text :
       {&facts.ran<&sweep::Point::precision>(), &facts.ran<&sweep::Point::mixed_precision>(),
        &facts.ran<&sweep::Point::sharding_strategy>()})
    *text = "HYBRID_SHARD_XYZ";
  facts.project = std::string(16, 'p');
  facts.run = std::string(46, 'r');
  facts.derived_from = "123456789012";
  facts.started_utc = "2026-11-29T12:41:11.204Z";
  for (auto* text : {&facts.ran<&sweep::Point::data>(),
                     &facts.image,
                     &facts.label,
                     &facts.job,
                     &facts.user,
                     &facts.cluster,
                     &facts.driver,
                     &facts.blas,
                     &facts.trainer,
                     &facts.commit,
                     &facts.peak_source,
                     &facts.device_name,
                     &facts.hosts,
                     &facts.gpu,
                     &facts.gpu_requested,
                     &facts.recompute,
                     &facts.ran<&sweep::Point::attention>(),
                     &facts.cuda,
                     &facts.cublaslt,
                     &facts.cudnn,
                     &facts.nccl}) {
    *text = wide;
  }
  facts.env.emplace();
  for (int i = 0; i < 50; ++i) (*facts.env)["VARIABLE_" + std::to_string(i)] = "some value";
  for (auto* count :
       {&facts.device_memory_bytes, &facts.planned_bytes, &facts.allocated_bytes,
        &facts.unplanned_bytes, &facts.d_model, &facts.ffn, &facts.vocab, &facts.n_trainable,
        &facts.ran<&sweep::Point::hybrid_group>(), &facts.device_count}) {
    *count = kLargest;
  }
  // Longest numbers of a possible shape.
  facts.norm_eps = 1.2345678901234567e-300;
  facts.rope_theta = 123456.78901234567;
  facts.gemm_measured_tflops = kLong;
  facts.peak_tflops = kLong;
  Footer footer = test::sample_footer();
  footer.reason = wide;
  footer.ended_by = EndedBy::out_of_memory;
  for (auto* value :
       {&footer.steps.median_s, &footer.steps.mean_s, &footer.steps.p5_s, &footer.steps.p95_s,
        &footer.steps.loss_first, &footer.steps.loss_last, &footer.steps.grad_norm_last,
        &footer.step_s_max_over_ranks, &footer.startup_s, &footer.wall_s, &footer.comm_exposed_s,
        &footer.sm_clock_min_mhz, &footer.power_w_mean, &footer.flops_executed_per_token,
        &footer.flops_recompute_per_token}) {
    *value = kLong;
  }
  footer.steps.issue_median_s = kLong;
  footer.throttled = {"hw-slowdown", "hw-thermal", "power", "power-brake", "sync-boost", "thermal"};
  footer.other_processes = 999;  // of a GPU, which has no cpu_share
  footer.budget = {.gemm = 0.11111,
                   .attention = 0.22222,
                   .memory_bound = 0.33333,
                   .optimizer = 0.44444,
                   .offload = 0.55555,
                   .data_wait = 0.66666,
                   .other = 0.77777};
  const auto bytes_of = [&](Kind kind, const Json& fields) {
    Json record;
    record["tessera"] = kSchema;
    record["t"] = to_text(kind);
    if (kind == Kind::footer) {
      record["project"] = std::string(16, 'p');
      record["run"] = std::string(46, 'r');
    }
    record["id"] = "123456789012";
    record["rep"] = 99;
    record["try"] = 9999;
    record["restart"] = 99;
    record["rank"] = 0;
    record["n"] = 5100;
    if (kind == Kind::footer) record["utc"] = "2026-11-29T12:41:11.204Z";
    record["mono_s"] = kLong;
    record.update(fields);
    return seal(record.dump()).size() + 2;
  };
  constexpr std::size_t kMessageBytes = 4096;
  constexpr std::size_t kRoomBytes = 1024;
  const auto records = last_records(footer, facts);
  const std::size_t bytes = bytes_of(records.back().first, records.back().second);
  MESSAGE("of ", kMessageBytes, " bytes the largest footer leaves ", kMessageBytes - bytes);
  CHECK(bytes + kRoomBytes <= kMessageBytes);
  REQUIRE(records.size() >= 2);
  for (const auto& [kind, fields] : records) CHECK(bytes_of(kind, fields) <= kMaxRecordBytes);
}
