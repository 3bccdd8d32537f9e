// SPDX-License-Identifier: Apache-2.0
// Estimated times against published step times, against the trainer's own pace, and by hand.
#include "lib/sweep/time_estimate.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "lib/sweep/duration.h"
#include "tests/lib/sweep/published_points.h"
#include "trainer/train/pace.h"

using namespace tessera;
using namespace tessera::sweep;
using test::gpu_point;

namespace {

const hardware::Catalogue& catalogue() {
  static const hardware::Catalogue built_in = hardware::built_in_catalogue();
  return built_in;
}

TimeFacts usual_facts() {
  return {.catalogue = &catalogue(), .rows = published_rows()};
}

Point cpu_point() {
  Point point = gpu_point("cpu-2m", 256, 16, 1, "cpu");
  point.precision = Precision::fp32;
  point.threads = 2;
  return point;
}

// 70b as published on 512 devices: 16.27 s a step.
Point large_point() {
  Point point = gpu_point("70b", 2048, 4096, 512, "h100_80gb");
  point.activation_checkpointing = Checkpointing::full;
  return point;
}

// A GPU on which one step of the point takes `seconds` at the assumed 35 %.
hardware::Catalogue with_step_time(const Point& point, double seconds) {
  hardware::Gpu gpu{.name = point.gpu,
                    .match = {},
                    .not_match = {},
                    .memory_gib = 80,
                    .reserve_gib = 1,
                    .peak_tflops = {{"amp_bf16", 1.0}},
                    .source = {}};
  hardware::Catalogue one{.gpus = {gpu}};
  const auto time = estimate_time(point, {.catalogue = &one});
  one.gpus[0].peak_tflops["amp_bf16"] = time.estimate->step_s / seconds;
  return one;
}

// Steps that the trainer trains, each `step_s` long, if it waits for each before the next.
std::int64_t paced_steps(const Point& point, double step_s) {
  trainer::Pace pace(trainer::gpu_pace(point.steps, point.warmup));
  std::int64_t step = 0;
  for (; pace.wants_more(step); ++step) pace.take(step_s);
  return step;
}

}  // namespace

TEST_CASE("every published row gives its published step time, by its own row") {
  double worst = 0;
  for (const auto& row : test::mpt_rows()) {
    const std::string name = fmt::format("{}/{} on {} {}", row.at("model"), row.at("seq_len"),
                                         row.at("gpus"), row.at("gpu"));
    CAPTURE(name);
    const RunTime time = estimate_time(test::point_of(row), usual_facts());
    REQUIRE(time.estimate.has_value());
    const double published =
        std::stod(row.at("global_batch_tokens")) / std::stod(row.at("tokens_per_s"));
    worst = std::max(worst, std::abs(time.estimate->step_s / published - 1));
    CHECK(time.estimate->step_s == doctest::Approx(published).epsilon(0.02));
    CHECK(time.source ==
          fmt::format("{:.4g} % MFU, of the published {}", std::stod(row.at("mfu")), name));
  }
  MESSAGE("worst deviation from a published step time: " << worst);
  CHECK(worst < 0.002);
}

TEST_CASE("a published run by hand: seconds, limit and GPU-hours") {
  // 8388608 tokens a step at 515636 tokens/s: 16.27 s; 30 of them 488 s, with 300 s of startup 788.
  const RunTime time = estimate_time(large_point(), usual_facts());
  CHECK(time.gpus == 512);
  CHECK(time.estimate->mfu == doctest::Approx(0.4125));
  CHECK(time.estimate->step_s == doctest::Approx(16.27).epsilon(0.001));
  CHECK(time.estimate->steps == 30);
  CHECK(time.estimate->seconds == doctest::Approx(788).epsilon(0.001));
  // 300 + 3 x 488 = 1764 s: 29.4 minutes.
  CHECK(time.time_limit_s == 30 * 60);
  CHECK_FALSE(time.limit_cut);
  CHECK(describe(time) ==
        "13 min, 30 steps of 16.3 s, 41.25 % MFU, of the published 70b/2048 on 512 h100_80gb; "
        "limit 00:30:00");

  TimeFacts facts = usual_facts();
  facts.profile = true;  // 34 steps: 553 s
  CHECK(estimate_time(large_point(), facts).estimate->steps == 34);
  CHECK(estimate_time(large_point(), facts).estimate->seconds ==
        doctest::Approx(853).epsilon(0.001));
  facts.profile = false;
  facts.startup_s = 0;
  CHECK(estimate_time(large_point(), facts).estimate->seconds ==
        doctest::Approx(488).epsilon(0.001));
  CHECK(estimate_time(large_point(), facts).time_limit_s == 25 * 60);

  const std::vector<RunTime> twice(2, time);
  // 788 s x 512 / 3600 = 112.1 hours a run, half an hour x 512 = 256 by its limit.
  CHECK(gpu_hours(twice, 3).hours == doctest::Approx(6 * 112.1).epsilon(0.001));
  CHECK(gpu_hours(twice, 3).limit_hours == doctest::Approx(6 * 256));
  CHECK(gpu_hours(twice, 3).unknown == 0);
  CHECK(gpu_hours({}, 3).hours == 0);
}

TEST_CASE("where no row is near, 35 % of the peak by hand") {
  // 6 x 1315950592 parameters x 2048 tokens and 12 x 24 x 2048 x 2048^2 for attention a sequence;
  // 989.5 TFLOP/s x 8 x 35 %.
  const Point point = gpu_point("1b", 2048, 320, 8, "h200");
  const double flops = 320 * (6 * 1315950592.0 * 2048 + 12 * 24 * 2048.0 * 2048 * 2048);
  const RunTime time = estimate_time(point, usual_facts());
  CHECK(time.estimate->step_s == doctest::Approx(flops / (8 * 989.5e12 * 0.35)));
  CHECK(time.source == "35 % MFU assumed");
  TimeFacts no_rows = usual_facts();
  no_rows.rows = {};
  CHECK(estimate_time(large_point(), no_rows).source == "35 % MFU assumed");
  // 1 / 0.35 of what the row of 41.25 % says.
  CHECK(estimate_time(large_point(), no_rows).estimate->step_s ==
        doctest::Approx(16.27 * 41.25 / 35).epsilon(0.001));
}

TEST_CASE("a GPU without a peak has no estimate, and says why") {
  TimeFacts facts = usual_facts();
  const RunTime unknown = estimate_time(gpu_point("1b", 2048, 320, 8, "z900"), facts);
  CHECK_FALSE(unknown.estimate.has_value());
  CHECK(unknown.source == "no estimate: GPU 'z900' is not in the catalogue");
  CHECK(unknown.time_limit_s == 3600);
  CHECK(describe(unknown) == "no estimate: GPU 'z900' is not in the catalogue; limit 01:00:00");
  Point fp8 = gpu_point("1b", 2048, 320, 8, "a100_80gb");
  fp8.precision = Precision::amp_fp8;
  CHECK(estimate_time(fp8, facts).source == "no estimate: a100_80gb has no amp_fp8 units");
  facts.max_time_s = 14400;
  CHECK(estimate_time(fp8, facts).time_limit_s == 14400);
  CHECK_FALSE(estimate_time(fp8, facts).limit_cut);

  const RunTime known = estimate_time(large_point(), usual_facts());
  const GpuHours hours = gpu_hours(std::vector{unknown, known}, 2);
  CHECK(hours.unknown == 2);
  CHECK(hours.hours == doctest::Approx(gpu_hours(std::vector{known}, 2).hours));
  CHECK(hours.limit_hours == doctest::Approx(2 * (8 * 1 + 512 * 0.5)));
}

TEST_CASE("a point on a CPU is estimated by the measured peak, if there is one") {
  const Point point = cpu_point();
  TimeFacts facts = usual_facts();
  const RunTime blind = estimate_time(point, facts);
  CHECK_FALSE(blind.estimate.has_value());
  CHECK(blind.source == "no estimate: the CPU's peak is not measured");
  CHECK(blind.time_limit_s == 3600);

  facts.cpu_peak_tflops = 0.1;
  facts.startup_s = 2;
  const RunTime time = estimate_time(point, facts);
  REQUIRE(time.estimate.has_value());
  CHECK(time.source == "50 % of the measured CPU peak assumed");
  CHECK(time.estimate->steps == 30);  // exact, however short
  const model::Shape& shape = point.model;
  const double flops =
      16 * 256 *
      (6.0 * static_cast<double>(model::parameter_count(shape, 256)) +
       12.0 * static_cast<double>(shape.n_layers * model::attention_width(shape)) * 256);
  CHECK(time.estimate->step_s == doctest::Approx(flops / 0.05e12));
  CHECK(time.gpus == 0);
  CHECK(gpu_hours(std::vector{time, blind}, 5).hours == 0);
  CHECK(gpu_hours(std::vector{time, blind}, 5).limit_hours == 0);
  CHECK(gpu_hours(std::vector{time, blind}, 5).unknown == 0);
  for (const double nonsense : {0.0, -1.0, std::nan("")}) {
    facts.cpu_peak_tflops = nonsense;
    CHECK_FALSE(estimate_time(point, facts).estimate.has_value());
  }
}

TEST_CASE("steps are those of the trainer's pace") {
  Point point = gpu_point("1b", 2048, 320, 8, "h200");
  std::mt19937_64 random(7);
  for (int i = 0; i < 3000; ++i) {
    point.warmup = static_cast<std::int64_t>(random() % 60);
    point.steps = point.warmup + 1 + static_cast<std::int64_t>(random() % 60);
    if (i % 10 == 0) point.steps += 3000;
    // Multiples of 2^-16 s, so that sums are exact.
    const double step_s = std::ldexp(static_cast<double>(1 + random() % 1000000), -16);
    CAPTURE(point.warmup);
    CAPTURE(point.steps);
    CAPTURE(step_s);
    CHECK(trained_steps(point, step_s) == paced_steps(point, step_s));
  }
  point.exact_steps = true;
  point.steps = 12;
  point.warmup = 2;
  CHECK(trained_steps(point, 1e-6) == 12);
  CHECK(trained_steps(cpu_point(), 1e-6) == 30);
  point.exact_steps = false;
  CHECK(trained_steps(point, 1e-6) == 2000);
  CHECK(trained_steps(point, 0.5) == 40);  // 10 of warm-up, 30 measured
  CHECK(trained_steps(point, 100) == 13);  // 3 and 10
  point.steps = 5000;
  CHECK(trained_steps(point, 1e-6) == 5001);  // 3 and the 4,998 that are to be measured
}

TEST_CASE("a step of an hour takes the hours it takes, and its limit is cut by the cluster's") {
  Point point = gpu_point("1b", 2048, 320, 8, "slow");
  point.exact_steps = true;
  point.steps = 1;
  point.warmup = 0;
  const auto slow = with_step_time(point, 3600);
  TimeFacts facts{.catalogue = &slow};
  RunTime time = estimate_time(point, facts);
  CHECK(time.estimate->seconds == doctest::Approx(3900));
  CHECK(time.time_limit_s / 60 == (300 + 3 * 3600) / 60);
  facts.max_time_s = 4 * 3600;
  CHECK_FALSE(estimate_time(point, facts).limit_cut);
  facts.max_time_s = 7200;
  time = estimate_time(point, facts);
  CHECK(time.limit_cut);
  CHECK(time.time_limit_s == 7200);
  CHECK(time.estimate->seconds == doctest::Approx(3900));  // the estimate stays what it is
  CHECK(describe(time) ==
        "65 min, 1 step of 60 min, 35 % MFU assumed; limit 02:00:00 (the longest allowed)");
  // 13 steps unless they are exact.
  point.exact_steps = false;
  CHECK(estimate_time(point, facts).estimate->steps == 13);
}

TEST_CASE("limits are whole minutes, at least five, and never above the longest") {
  Point point = gpu_point("1b", 2048, 320, 8, "any");
  point.exact_steps = true;
  const auto limit = [&](double training_s, std::int64_t startup_s,
                         std::optional<std::int64_t> most) {
    const auto gpus = with_step_time(point, training_s / 30);
    return estimate_time(point, {.catalogue = &gpus, .startup_s = startup_s, .max_time_s = most});
  };
  CHECK(limit(1, 0, {}).time_limit_s == 300);
  CHECK(limit(99, 0, {}).time_limit_s == 300);
  CHECK(limit(101, 0, {}).time_limit_s == 360);
  CHECK(limit(10, 300, {}).time_limit_s == 360);  // 330 s
  CHECK(limit(1, 0, 90).time_limit_s == 90);
  CHECK(limit(1, 0, 90).limit_cut);
  CHECK(limit(1, 0, 300).time_limit_s == 300);
  CHECK_FALSE(limit(1, 0, 300).limit_cut);
  const RunTime ages = limit(1e15, 300, {});
  CHECK(ages.time_limit_s == kMostLimit_s);
  CHECK(ages.limit_cut);
  CHECK(limit(1e15, 300, 1000 * kMostLimit_s).time_limit_s == kMostLimit_s);
  // A limit as it is printed is one that is read back.
  const std::string text = describe(limit(101, 0, {}));
  CHECK(parse_duration(text.substr(text.rfind(' ') + 1)) == 360);
}

TEST_CASE("more steps never take less time") {
  for (const double step_s : {1e-5, 0.004, 0.3, 1.7, 40.0}) {
    Point point = gpu_point("1b", 2048, 320, 8, "any");
    const auto gpus = with_step_time(point, step_s);
    for (const bool exact : {false, true}) {
      point.exact_steps = exact;
      double seconds = 0;
      std::int64_t limit_s = 0;
      for (point.steps = point.warmup + 1; point.steps < 4000; point.steps += 13) {
        const RunTime time = estimate_time(point, {.catalogue = &gpus});
        CHECK(time.estimate->seconds >= seconds);
        CHECK(time.time_limit_s >= limit_s);
        seconds = time.estimate->seconds;
        limit_s = time.time_limit_s;
      }
      CHECK(seconds > 300 + 3900 * step_s);
    }
  }
}

TEST_CASE("random points, sensible and absurd, have a finite positive time or none") {
  std::mt19937_64 random(11);
  const auto size = [&](int most_bits) {
    return 1 + static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % most_bits)));
  };
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  const std::string gpus[] = {"h100_80gb", "a100_80gb", "a100_40gb", "h200", "cpu", "z900"};
  const Precision precisions[] = {Precision::fp32, Precision::amp_bf16, Precision::amp_fp16,
                                  Precision::amp_fp8};
  int estimated = 0;
  int far_sequences = 0;
  for (int i = 0; i < 20000; ++i) {
    Point point = gpu_point("125m", size(41), size(41), size(41), pick(gpus));
    model::Shape& shape = point.model;
    shape.head_dim = 2 * size(10);
    shape.n_heads = shape.n_kv_heads = size(10);
    shape.d_model = size(25);
    shape.n_layers = size(12);
    shape.ffn = size(25);
    shape.vocab = size(25);
    if (random() % 2 == 0) shape.positions = model::Positions::alibi;
    if (model::contradiction(shape)) continue;
    point.precision = pick(precisions);
    point.steps = size(41);
    point.warmup = size(41) - 1;
    point.exact_steps = random() % 2 == 0;
    if (random() % 3 == 0) point.activation_checkpointing = Checkpointing::full;
    TimeFacts facts = usual_facts();
    facts.startup_s = size(25) - 1;
    facts.profile = random() % 2 == 0;
    if (random() % 2 == 0) facts.cpu_peak_tflops = 0.1;
    if (random() % 2 == 0) facts.max_time_s = size(30);
    const RunTime time = estimate_time(point, facts);
    CAPTURE(describe(time));
    CHECK(time.time_limit_s > 0);
    CHECK(time.time_limit_s <= std::min(facts.max_time_s.value_or(kMostLimit_s), kMostLimit_s));
    CHECK((time.time_limit_s % 60 == 0 || time.time_limit_s == facts.max_time_s));
    CHECK_FALSE(time.source.empty());
    CHECK(time.source.starts_with("no estimate: ") == !time.estimate);
    const GpuHours hours = gpu_hours(std::vector{time}, size(20));
    CHECK(std::isfinite(hours.hours));
    CHECK(std::isfinite(hours.limit_hours));
    CHECK(hours.hours >= 0);
    if (time.source.find("beyond what") != std::string::npos) ++far_sequences;
    if (!time.estimate) continue;
    ++estimated;
    CHECK(std::isfinite(time.estimate->seconds));
    CHECK(time.estimate->step_s > 0);
    CHECK(time.estimate->steps >= 1);
    CHECK(time.estimate->seconds >= time.estimate->step_s);
    CHECK((time.estimate->mfu > 0 && time.estimate->mfu <= 1));
    CHECK((time.limit_cut || static_cast<double>(time.time_limit_s) >= time.estimate->seconds));
  }
  MESSAGE(estimated << " random points estimated, " << far_sequences << " beyond counting");
  CHECK(estimated > 5000);
}
