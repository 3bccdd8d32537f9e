#include "lib/runlog/footer.h"

#include <doctest/doctest.h>

#include <string>

#include "lib/base/crc32.h"
#include "tests/lib/runlog/samples.h"

using namespace tessera;
using namespace tessera::runlog;

namespace {

Json as_record(const Footer& footer, const Facts& facts) {
  Json record = footer_json(footer, facts);
  record["t"] = "footer";
  record["project"] = *facts.project;
  record["run"] = *facts.run;
  record["id"] = *facts.id;
  record["rep"] = *facts.rep;
  record["try"] = *facts.attempt;
  record["restart"] = *facts.restart;
  return record;
}

}  // namespace

TEST_CASE("a footer alone gives back every fact and figure") {
  const Facts facts = test::sample_facts();
  const Footer footer = test::sample_footer();
  const auto parsed = parse_footer(Json::parse(as_record(footer, facts).dump()));
  REQUIRE(parsed.has_value());
  CHECK(parsed->second == facts);
  CHECK(parsed->first.status == Status::ok);
  CHECK(parsed->first.steps.measured_s == 23.05);
  CHECK(parsed->first.steps.median_s == 1.1519);
  CHECK(parsed->first.steps.tokens == 1966080);
  CHECK(parsed->first.mem_peak_bytes == 61203283968);
  CHECK_FALSE(parsed->first.power_w_mean.has_value());
  CHECK(shape_of(parsed->second)->ffn == 16384);
  // Logs of before these two were written.
  CHECK(shape_of(parsed->second)->norm_eps == 1e-5);
  CHECK(shape_of(parsed->second)->rope_theta == 1e4);
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
  const Json json = footer_json(footer, test::sample_facts());
  CHECK(json["cpu_share"].dump() == "0.8765");
  CHECK(json["budget"].dump() ==
        R"({"gemm":0.6123,"attention":0.1,"memory_bound":0.2,"optimizer":0.05,"offload":0.0,)"
        R"("data_wait":0.03,"other":0.0077})");
  const auto parsed = parse_footer(as_record(footer, test::sample_facts()));
  REQUIRE(parsed.has_value());
  CHECK(parsed->first.cpu_share == 0.8765);
  CHECK(parsed->first.budget->gemm == 0.6123);
  CHECK(parsed->first.budget->other == 0.0077);
  CHECK_FALSE(parse_footer(as_record(test::sample_footer(), test::sample_facts()))
                  ->first.budget.has_value());
}

TEST_CASE("what is not known is absent, never 0 or -1") {
  Footer footer;
  footer.status = Status::oom;
  footer.reason = "device memory";
  const Json json = footer_json(footer, Facts{});
  for (const char* key : {"measured_s", "step_s", "tokens", "loss_first", "wall_s",
                          "mem_peak_bytes", "power_w_mean"}) {
    CAPTURE(key);
    CHECK_FALSE(json.contains(key));
  }
  CHECK(json["row"].empty());
}

TEST_CASE("members of a wrong type and unknown statuses are not believed") {
  Json record = as_record(test::sample_footer(), test::sample_facts());
  record["row"]["n_params"] = "many";
  record["measured_s"] = "fast";
  const auto parsed = parse_footer(record);
  REQUIRE(parsed.has_value());
  CHECK_FALSE(parsed->second.n_params.has_value());
  CHECK(parsed->first.steps.measured_s == 0);
  record["status"] = "splendid";
  CHECK_FALSE(parse_footer(record).has_value());
  record["status"] = "ok";
  record.erase("row");
  CHECK_FALSE(parse_footer(record).has_value());
}

TEST_CASE("the largest footer fits one write to a pipe") {
  const std::string wide(5000, 'W');
  constexpr double kLong = -1.2345678901234567e-300;
  constexpr std::int64_t kLargest = std::int64_t{1} << 40;
  Facts facts = test::sample_facts();
  for (auto* text : {&facts.precision, &facts.mixed_precision, &facts.sharding_strategy})
    *text = "HYBRID_SHARD_XYZ";
  facts.project = std::string(16, 'p');
  facts.run = std::string(46, 'r');
  facts.derived_from = "123456789012";
  facts.started_utc = "2026-11-29T12:41:11.204Z";
  for (auto* text :
       {&facts.data,        &facts.image,       &facts.label, &facts.job,      &facts.user,
        &facts.cluster,     &facts.driver,      &facts.blas,  &facts.trainer,  &facts.commit,
        &facts.peak_source, &facts.device_name, &facts.hosts, &facts.gpu,      &facts.gpu_requested,
        &facts.recompute,   &facts.attention,   &facts.cuda,  &facts.cublaslt, &facts.cudnn,
        &facts.nccl}) {
    *text = wide;
  }
  facts.env.emplace();
  for (int i = 0; i < 50; ++i) (*facts.env)["VARIABLE_" + std::to_string(i)] = "some value";
  for (auto* count : {&facts.device_memory_bytes, &facts.planned_bytes, &facts.allocated_bytes,
                      &facts.unplanned_bytes, &facts.d_model, &facts.ffn, &facts.vocab,
                      &facts.n_trainable, &facts.hybrid_group, &facts.device_count}) {
    *count = kLargest;
  }
  // Of a possible shape.
  facts.norm_eps = 1.2345678901234567e-300;
  facts.rope_theta = 123456.78901234567;
  facts.gemm_measured_tflops = kLong;
  facts.peak_tflops = kLong;
  Footer footer = test::sample_footer();
  footer.reason = wide;
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
  Json record;
  record["tessera"] = kSchema;
  record["t"] = "footer";
  record["project"] = std::string(16, 'p');
  record["run"] = std::string(46, 'r');
  record["id"] = "123456789012";
  record["rep"] = 99;
  record["try"] = 9999;
  record["restart"] = 99;
  record["rank"] = 0;
  record["n"] = 5100;
  record["utc"] = "2026-11-29T12:41:11.204Z";
  record["mono_s"] = kLong;
  record.update(footer_json(footer, facts));
  CHECK(seal(record.dump()).size() + 2 <= kMaxRecordBytes);
}
