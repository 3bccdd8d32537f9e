// SPDX-License-Identifier: Apache-2.0
#include "lib/point/run_spec.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tessera::sweep {

namespace {

constexpr std::int64_t kSchema = 1;
constexpr std::size_t kLargestBytes = 32768;
constexpr std::int64_t kMany = 1000000;

}  // namespace

std::string run_spec_json(const RunSpec& spec) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["schema"] = kSchema;
  json["project"] = spec.project;
  json["id"] = spec.id;
  json["run"] = spec.run;
  json["label"] = spec.label;
  json["repeat"] = spec.repeat;
  json["repeats"] = spec.repeats;
  json["attempt"] = spec.attempt;
  json["derived_from"] = spec.derived_from.empty() ? Json(nullptr) : Json(spec.derived_from);
  json["user"] = spec.user;
  json["job"] = spec.job.empty() ? Json(nullptr) : Json(spec.job);
  json["point"] = Json::parse(point_json(spec.point));
  json["expect"] = spec.expect;
  if (!spec.expect_match.empty()) json["expect_match"] = spec.expect_match;
  if (!spec.expect_not.empty()) json["expect_not"] = spec.expect_not;
  json["peak"] = spec.peak ? Json{{"tflops", spec.peak->tflops}, {"source", spec.peak->source}}
                           : Json(nullptr);
  if (spec.peak && spec.peak->disturbed) json["peak"]["disturbed"] = to_text(*spec.peak->disturbed);
  if (spec.reserve_bytes > 0) json["reserve_bytes"] = spec.reserve_bytes;
  if (spec.microbatch > 0) json["microbatch"] = spec.microbatch;
  json["paths"] = Json{{"run_dir", spec.run_dir.empty() ? Json(nullptr) : Json(spec.run_dir)}};
  json["shared_with"] = spec.shared_with;
  json["log_every"] = spec.log_every;
  // Older trainers do not know these.
  if (spec.profile) json["profile"] = true;
  if (!spec.unset_env.empty()) json["unset_env"] = spec.unset_env;
  if (spec.in_job) {
    json["in_job"] = Json{
        {"name", spec.in_job->name}, {"index", spec.in_job->index}, {"array", spec.in_job->array}};
  }
  return json.dump();
}

RunSpec parse_run_spec(std::string_view json, const std::string& name) try {
  if (json.size() > kLargestBytes) {
    throw Error(ExitCode::spec, name, fmt::format("is {} bytes long", json.size()),
                fmt::format("a run specification has at most {}", kLargestBytes));
  }
  const Value root = parse_json(json, name);
  Fields fields(root, "a run specification");
  const Value& schema = fields.required("schema");
  if (as_integer(schema) != kSchema) {
    bad_value(schema, fmt::format("schema {} is not known", schema.text),
              fmt::format("this trainer reads {}", kSchema));
  }
  const auto small = [](const Value& value, std::int64_t low) {
    return static_cast<int>(as_integer(value, low, kMany));
  };
  RunSpec spec;
  spec.project = as_text(fields.required("project"));
  spec.id = as_text(fields.required("id"));
  spec.run = as_text(fields.required("run"));
  spec.label = as_text(fields.required("label"));
  spec.repeat = small(fields.required("repeat"), 1);
  spec.repeats = small(fields.required("repeats"), 1);
  spec.attempt = small(fields.required("attempt"), 1);
  if (const Value* derived = fields.optional("derived_from")) spec.derived_from = as_text(*derived);
  if (const Value* user = fields.optional("user")) spec.user = as_text(*user);
  if (const Value* job = fields.optional("job")) spec.job = as_text(*job);
  spec.point = parse_point(fields.required("point"));
  const auto texts = [&](const char* key) {
    const Value* value = fields.optional(key);
    return value != nullptr && !value->items.empty() ? as_texts(*value)
                                                     : std::vector<std::string>();
  };
  spec.expect = texts("expect");
  spec.expect_match = texts("expect_match");
  spec.expect_not = texts("expect_not");
  if (const Value* peak = fields.optional("peak")) {
    Fields members(*peak, "peak");
    spec.peak = Peak{.tflops = as_number(members.required("tflops")),
                     .source = as_text(members.required("source")),
                     .disturbed = {}};
    if (const Value* disturbed = members.optional("disturbed"))
      spec.peak->disturbed = as_name<hardware::Disturbance>(*disturbed);
    members.finish();
  }
  if (const Value* reserve = fields.optional("reserve_bytes")) {
    constexpr std::int64_t kMost = std::int64_t{1} << 50;
    spec.reserve_bytes = as_integer(*reserve, 0, kMost);
  }
  if (const Value* microbatch = fields.optional("microbatch")) {
    spec.microbatch = as_integer(*microbatch, 1, spec.point.global_batch);
    if (spec.point.microbatch_size != kAutoMicrobatch)
      bad_value(*microbatch, "the point says its own", "leave it out");
  }
  if (const Value* paths = fields.optional("paths")) {
    Fields members(*paths, "paths");
    if (const Value* run_dir = members.optional("run_dir")) spec.run_dir = as_text(*run_dir);
    members.finish();
  }
  if (const Value* shared = fields.optional("shared_with")) spec.shared_with = small(*shared, 0);
  if (const Value* every = fields.optional("log_every")) spec.log_every = small(*every, 1);
  if (const Value* profile = fields.optional("profile")) spec.profile = as_bool(*profile);
  if (const Value* unset = fields.optional("unset_env")) spec.unset_env = as_texts(*unset);
  if (const Value* in_job = fields.optional("in_job")) {
    Fields members(*in_job, "in_job");
    spec.in_job =
        InJob{.name = as_text(members.required("name")),
              .index = static_cast<std::size_t>(as_integer(members.required("index"), 0, kMany)),
              .array = as_bool(members.required("array"))};
    members.finish();
  }
  fields.finish();
  return spec;
} catch (const Error& error) {
  if (error.code() == ExitCode::spec) throw;
  throw Error(ExitCode::spec, "", error.what());
}

}  // namespace tessera::sweep
