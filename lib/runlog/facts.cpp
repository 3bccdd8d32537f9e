// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "lib/runlog/before_schema_2.h"
#include "lib/runlog/keys.h"
#include "lib/runlog/members.h"
#include "lib/runlog/text.h"

namespace tessera::runlog {

namespace {

constexpr std::size_t kDataBytes = 56;
constexpr std::size_t kImageBytes = 56;
constexpr std::size_t kNameBytes = 64;
constexpr std::size_t kSourceBytes = 80;
constexpr std::size_t kWordBytes = 40;
constexpr std::size_t kVersionBytes = 24;  // and of a choice
constexpr std::size_t kEnvBytes = 150;
constexpr std::size_t kRowBytes = 2500;  // of the row in one record

// A member of Facts: its key in the row, and where it is from.
struct Fact {
  std::string_view key;
  Kind record;                    // the kind of record that says it
  std::size_t most_bytes = 0;     // of its text in the row; 0: all
  std::string_view said_as = {};  // its key there; empty: as in the row
  bool is_put_together = false;   // of more than one member, by absorb_*
};

// Every member but those that each record says of itself; the one list of them, in the row's order.
template <class F, class Visit>
void each_fact(F& facts, Visit visit) {
  using enum Kind;
  visit(Fact{keys::label, header, kWordBytes}, facts.label);
  visit(Fact{keys::job, header, kWordBytes}, facts.job);
  visit(Fact{keys::user, header, kWordBytes}, facts.user);
  visit(Fact{keys::cluster, header, kWordBytes}, facts.cluster);
  visit(Fact{keys::derived_from, header}, facts.derived_from);
  visit(Fact{keys::gpu_requested, header, kWordBytes}, facts.gpu_requested);
  visit(Fact{.key = keys::started_utc, .record = header, .said_as = keys::utc}, facts.started_utc);
  visit(Fact{keys::repeats, header}, facts.repeats);
  visit(Fact{.key = keys::env, .record = header, .is_put_together = true}, facts.env);
  visit(Fact{keys::d_model, model}, facts.d_model);
  visit(Fact{keys::n_layers, model}, facts.n_layers);
  visit(Fact{keys::n_heads, model}, facts.n_heads);
  visit(Fact{keys::n_kv_heads, model}, facts.n_kv_heads);
  visit(Fact{keys::head_dim, model}, facts.head_dim);
  visit(Fact{keys::ffn, model}, facts.ffn);
  visit(Fact{keys::vocab, model}, facts.vocab);
  visit(Fact{keys::n_params, model}, facts.n_params);
  visit(Fact{keys::n_trainable, model}, facts.n_trainable);
  visit(Fact{keys::norm, model}, facts.norm);
  visit(Fact{keys::positions, model}, facts.positions);
  visit(Fact{keys::activation, model}, facts.activation);
  visit(Fact{keys::biases, model}, facts.biases);
  visit(Fact{keys::tied, model}, facts.tied);
  visit(Fact{keys::norm_eps, model}, facts.norm_eps);
  visit(Fact{keys::rope_theta, model}, facts.rope_theta);
  sweep::ToldSettings::each(
      facts.settings, [&]<class T>(const sweep::Field<T>& field, auto& value) {
        constexpr bool is_text = std::is_same_v<T, std::string>;
        visit(Fact{field.key, effective, is_text ? kDataBytes : kVersionBytes}, value);
      });
  visit(Fact{keys::accum, effective}, facts.accum);
  visit(Fact{keys::shared_with, effective}, facts.shared_with);
  visit(Fact{keys::recompute, effective, kVersionBytes}, facts.recompute);
  visit(Fact{keys::emulated, effective}, facts.emulated);
  visit(Fact{keys::device_name, host, kNameBytes, keys::devices, true}, facts.device_name);
  visit(Fact{keys::hosts, host, kNameBytes, keys::host, true}, facts.hosts);
  visit(Fact{keys::driver, host, kVersionBytes}, facts.driver);
  visit(Fact{keys::device_count, host, 0, keys::count, true}, facts.device_count);
  visit(Fact{keys::device_memory_bytes, host, 0, keys::memory_bytes}, facts.device_memory_bytes);
  visit(Fact{keys::trainer, software, kVersionBytes}, facts.trainer);
  visit(Fact{keys::commit, software, kVersionBytes}, facts.commit);
  visit(Fact{keys::image, software, kImageBytes}, facts.image);
  visit(Fact{keys::cuda, software, kVersionBytes}, facts.cuda);
  visit(Fact{keys::cublaslt, software, kVersionBytes}, facts.cublaslt);
  visit(Fact{keys::cudnn, software, kVersionBytes}, facts.cudnn);
  visit(Fact{keys::nccl, software, kVersionBytes}, facts.nccl);
  visit(Fact{keys::blas, software, kNameBytes}, facts.blas);
  visit(Fact{keys::planned_bytes, plan}, facts.planned_bytes);
  visit(Fact{keys::allocated_bytes, plan}, facts.allocated_bytes);
  visit(Fact{keys::unplanned_bytes, plan}, facts.unplanned_bytes);
  visit(Fact{keys::gpu, peak, kWordBytes}, facts.gpu);
  visit(Fact{keys::peak_tflops, peak}, facts.peak_tflops);
  visit(Fact{keys::peak_source, peak, kSourceBytes, keys::source}, facts.peak_source);
  visit(Fact{keys::peak_disturbed, peak, 0, keys::disturbed}, facts.peak_disturbed);
  visit(Fact{keys::gemm_measured_tflops, peak}, facts.gemm_measured_tflops);
}

void take_origin(Facts& facts, const Json& record) {
  take(record, keys::project, facts.project);
  take(record, keys::run, facts.run);
  take(record, keys::id, facts.id);
  take(record, keys::rep, facts.rep);
  take(record, keys::try_, facts.attempt);
  take(record, keys::restart, facts.restart);
}

void absorb_header(Facts& facts, const Json& record) {
  take_origin(facts, record);
  if (const auto point = record.find(keys::point); point != record.end() && point->is_object())
    take(*point, keys::env, facts.env);
}

void absorb_host(Facts& facts, const Json& record) {
  if (const auto devices = record.find(keys::devices);
      devices != record.end() && devices->is_array()) {
    // Several kinds in one run are all named, so that nobody takes them for one.
    std::vector<std::string> kinds;
    for (const Json& device : *devices) {
      if (device.is_string() &&
          std::ranges::find(kinds, device.get<std::string>()) == kinds.end()) {
        kinds.push_back(device.get<std::string>());
      }
    }
    std::string names;
    for (const std::string& kind : kinds) names += (names.empty() ? "" : " + ") + kind;
    if (!names.empty()) facts.device_name = cut_text(names, kNameBytes);
  }
  std::optional<std::int64_t> count;
  take(record, keys::count, count);
  if (count) facts.device_count = facts.device_count.value_or(0) + *count;
  std::optional<std::string> host;
  take(record, keys::host, host);
  if (host) facts.hosts = cut_text(facts.hosts ? *facts.hosts + "," + *host : *host, kNameBytes);
}

// Where a record of before schema 2 says it.
void disturbed_in_words(Facts& facts, const Json& record) {
  std::optional<int> schema;
  take(record, keys::schema, schema);
  if (schema.value_or(kSchema) >= 2 || !facts.peak_source) return;
  if (const auto disturbed = disturbance_in_words(*facts.peak_source))
    facts.peak_disturbed = to_text(*disturbed);
}

// As many variables as have room in the row, in order of name.
std::map<std::string, std::string> cut_env(std::map<std::string, std::string> env) {
  std::size_t bytes = 0;
  std::erase_if(env, [&](const auto& variable) {
    bytes += variable.first.size() + variable.second.size() + 6;
    return bytes > kEnvBytes;
  });
  return env;
}

}  // namespace

void absorb(Facts& facts, const Json& record) {
  std::optional<std::string> kind_name;
  take(record, keys::t, kind_name);
  const auto kind = kind_name ? from_text<Kind>(*kind_name) : std::nullopt;
  if (!kind) return;
  each_fact(facts, [&](const Fact& fact, auto& member) {
    if (fact.record == *kind && !fact.is_put_together)
      take(record, fact.said_as.empty() ? fact.key : fact.said_as, member);
  });
  if (kind == Kind::peak) disturbed_in_words(facts, record);
  if (kind == Kind::header) absorb_header(facts, record);
  if (kind == Kind::host) absorb_host(facts, record);
}

Json row_json(const Facts& facts) {
  Json row = Json::object();
  each_fact(facts, [&](const Fact& fact, const auto& member) {
    if (!member) return;
    using T = std::decay_t<decltype(*member)>;
    if constexpr (std::is_same_v<T, std::string>) {
      row[fact.key] = fact.most_bytes > 0 ? cut_text(*member, fact.most_bytes) : *member;
    } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
      row[fact.key] = cut_env(*member);
    } else {
      row[fact.key] = *member;
    }
  });
  return row;
}

std::vector<Json> row_records(const Facts& facts) {
  const Json row = row_json(facts);
  std::vector<Json> records;
  std::size_t bytes = 0;
  for (const auto& [key, value] : row.items()) {
    const std::size_t size =
        key.size() + value.dump(-1, ' ', false, Json::error_handler_t::replace).size() + 4;
    if (records.empty() || bytes + size > kRowBytes) {
      Json& record = records.emplace_back();
      record[keys::part] = records.size();
      record[keys::row] = Json::object();
      bytes = 0;
    }
    records.back()[keys::row][key] = value;
    bytes += size;
  }
  return records;
}

void take_row(Facts& facts, const Json& record) {
  if (const auto row = record.find(keys::row); row != record.end() && row->is_object())
    each_fact(facts, [&](const Fact& fact, auto& member) { take(*row, fact.key, member); });
  disturbed_in_words(facts, record);
  take_origin(facts, record);
}

std::optional<model::Shape> shape_of(const Facts& facts) {
  const bool known = facts.d_model && facts.n_layers && facts.n_heads && facts.n_kv_heads &&
                     facts.head_dim && facts.ffn && facts.vocab && facts.norm && facts.positions &&
                     facts.activation && facts.tied && facts.biases;
  if (!known) return std::nullopt;
  const auto norm = from_text<model::Norm>(*facts.norm);
  const auto positions = from_text<model::Positions>(*facts.positions);
  const auto activation = from_text<model::Activation>(*facts.activation);
  if (!norm || !positions || !activation) return std::nullopt;
  const std::string biases = "," + *facts.biases + ",";
  const auto has_bias = [&](const char* layer) {
    return biases.find(fmt::format(",{},", layer)) != std::string::npos;
  };
  const model::Shape usual;
  return model::Shape{.d_model = *facts.d_model,
                      .n_layers = *facts.n_layers,
                      .n_heads = *facts.n_heads,
                      .n_kv_heads = *facts.n_kv_heads,
                      .head_dim = *facts.head_dim,
                      .ffn = *facts.ffn,
                      .vocab = *facts.vocab,
                      .norm = *norm,
                      .positions = *positions,
                      .activation = *activation,
                      .biases = {.qkv = has_bias("qkv"),
                                 .out = has_bias("out"),
                                 .mlp = has_bias("mlp"),
                                 .norm = has_bias("norm")},
                      .tied = *facts.tied,
                      .norm_eps = facts.norm_eps.value_or(usual.norm_eps),
                      .rope_theta = facts.rope_theta.value_or(usual.rope_theta)};
}

}  // namespace tessera::runlog
