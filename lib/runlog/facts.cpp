#include "lib/runlog/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "lib/runlog/members.h"
#include "lib/runlog/text.h"

namespace tessera::runlog {

namespace {

constexpr std::size_t kDataBytes = 56;
constexpr std::size_t kImageBytes = 56;
constexpr std::size_t kNameBytes = 64;
constexpr std::size_t kSourceBytes = 80;
constexpr std::size_t kWordBytes = 40;
constexpr std::size_t kVersionBytes = 24;
constexpr std::size_t kEnvBytes = 150;
constexpr std::size_t kRowBytes = 2500;  // of the row in one record

// Every member with its key in `row`; the one list of them.
template <class F, class Visit>
void each_member(F& facts, Visit visit) {
  visit("project", facts.project);
  visit("run", facts.run);
  visit("id", facts.id);
  visit("label", facts.label);
  visit("job", facts.job);
  visit("user", facts.user);
  visit("cluster", facts.cluster);
  visit("derived_from", facts.derived_from);
  visit("gpu_requested", facts.gpu_requested);
  visit("started_utc", facts.started_utc);
  visit("rep", facts.rep);
  visit("try", facts.attempt);
  visit("restart", facts.restart);
  visit("repeats", facts.repeats);
  visit("env", facts.env);
  visit("d_model", facts.d_model);
  visit("n_layers", facts.n_layers);
  visit("n_heads", facts.n_heads);
  visit("n_kv_heads", facts.n_kv_heads);
  visit("head_dim", facts.head_dim);
  visit("ffn", facts.ffn);
  visit("vocab", facts.vocab);
  visit("n_params", facts.n_params);
  visit("n_trainable", facts.n_trainable);
  visit("norm", facts.norm);
  visit("positions", facts.positions);
  visit("activation", facts.activation);
  visit("biases", facts.biases);
  visit("tied", facts.tied);
  visit("norm_eps", facts.norm_eps);
  visit("rope_theta", facts.rope_theta);
  visit("gpus", facts.gpus);
  visit("nodes", facts.nodes);
  visit("seq_len", facts.seq_len);
  visit("global_batch", facts.global_batch);
  visit("microbatch_size", facts.microbatch_size);
  visit("accum", facts.accum);
  visit("hybrid_group", facts.hybrid_group);
  visit("threads", facts.threads);
  visit("shared_with", facts.shared_with);
  visit("steps", facts.steps_asked);
  visit("warmup", facts.warmup_asked);
  visit("seed", facts.seed);
  visit("precision", facts.precision);
  visit("mixed_precision", facts.mixed_precision);
  visit("sharding_strategy", facts.sharding_strategy);
  visit("activation_checkpointing", facts.activation_checkpointing);
  visit("recompute", facts.recompute);
  visit("attention", facts.attention);
  visit("data", facts.data);
  visit("activation_cpu_offload", facts.activation_cpu_offload);
  visit("deterministic", facts.deterministic);
  visit("fused_gelu", facts.fused_gelu);
  visit("emulated", facts.emulated);
  visit("device_name", facts.device_name);
  visit("hosts", facts.hosts);
  visit("driver", facts.driver);
  visit("device_count", facts.device_count);
  visit("device_memory_bytes", facts.device_memory_bytes);
  visit("trainer", facts.trainer);
  visit("commit", facts.commit);
  visit("image", facts.image);
  visit("cuda", facts.cuda);
  visit("cublaslt", facts.cublaslt);
  visit("cudnn", facts.cudnn);
  visit("nccl", facts.nccl);
  visit("blas", facts.blas);
  visit("planned_bytes", facts.planned_bytes);
  visit("allocated_bytes", facts.allocated_bytes);
  visit("unplanned_bytes", facts.unplanned_bytes);
  visit("gpu", facts.gpu);
  visit("peak_tflops", facts.peak_tflops);
  visit("peak_source", facts.peak_source);
  visit("gemm_measured_tflops", facts.gemm_measured_tflops);
}

void take_origin(Facts& facts, const Json& record) {
  take(record, "project", facts.project);
  take(record, "run", facts.run);
  take(record, "id", facts.id);
  take(record, "rep", facts.rep);
  take(record, "try", facts.attempt);
  take(record, "restart", facts.restart);
}

void absorb_header(Facts& facts, const Json& record) {
  take_origin(facts, record);
  for (auto [key, member] : {std::pair{"label", &facts.label},
                             {"job", &facts.job},
                             {"user", &facts.user},
                             {"cluster", &facts.cluster},
                             {"derived_from", &facts.derived_from},
                             {"gpu_requested", &facts.gpu_requested},
                             {"utc", &facts.started_utc}}) {
    take(record, key, *member);
  }
  take(record, "repeats", facts.repeats);
  if (const auto point = record.find("point"); point != record.end() && point->is_object()) {
    take(*point, "env", facts.env);
  }
}

void absorb_model(Facts& facts, const Json& record) {
  for (auto [key, member] : {std::pair{"d_model", &facts.d_model},
                             {"n_layers", &facts.n_layers},
                             {"n_heads", &facts.n_heads},
                             {"n_kv_heads", &facts.n_kv_heads},
                             {"head_dim", &facts.head_dim},
                             {"ffn", &facts.ffn},
                             {"vocab", &facts.vocab},
                             {"n_params", &facts.n_params},
                             {"n_trainable", &facts.n_trainable}}) {
    take(record, key, *member);
  }
  take(record, "norm", facts.norm);
  take(record, "positions", facts.positions);
  take(record, "activation", facts.activation);
  take(record, "tied", facts.tied);
  take(record, "biases", facts.biases);
  take(record, "norm_eps", facts.norm_eps);
  take(record, "rope_theta", facts.rope_theta);
}

void absorb_effective(Facts& facts, const Json& record) {
  for (auto [key, member] : {std::pair{"gpus", &facts.gpus},
                             {"nodes", &facts.nodes},
                             {"seq_len", &facts.seq_len},
                             {"global_batch", &facts.global_batch},
                             {"microbatch_size", &facts.microbatch_size},
                             {"accum", &facts.accum},
                             {"hybrid_group", &facts.hybrid_group},
                             {"threads", &facts.threads},
                             {"shared_with", &facts.shared_with},
                             {"steps", &facts.steps_asked},
                             {"warmup", &facts.warmup_asked}}) {
    take(record, key, *member);
  }
  for (auto [key, member] : {std::pair{"precision", &facts.precision},
                             {"mixed_precision", &facts.mixed_precision},
                             {"sharding_strategy", &facts.sharding_strategy},
                             {"activation_checkpointing", &facts.activation_checkpointing},
                             {"recompute", &facts.recompute},
                             {"attention", &facts.attention},
                             {"data", &facts.data}}) {
    take(record, key, *member);
  }
  take(record, "seed", facts.seed);
  take(record, "activation_cpu_offload", facts.activation_cpu_offload);
  take(record, "deterministic", facts.deterministic);
  take(record, "fused_gelu", facts.fused_gelu);
  take(record, "emulated", facts.emulated);
}

void absorb_host(Facts& facts, const Json& record) {
  take(record, "driver", facts.driver);
  take(record, "memory_bytes", facts.device_memory_bytes);
  if (const auto devices = record.find("devices"); devices != record.end() && devices->is_array()) {
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
  take(record, "count", count);
  if (count) facts.device_count = facts.device_count.value_or(0) + *count;
  std::optional<std::string> host;
  take(record, "host", host);
  if (host) facts.hosts = cut_text(facts.hosts ? *facts.hosts + "," + *host : *host, kNameBytes);
}

void absorb_software(Facts& facts, const Json& record) {
  for (auto [key, member] : {std::pair{"trainer", &facts.trainer},
                             {"commit", &facts.commit},
                             {"image", &facts.image},
                             {"cuda", &facts.cuda},
                             {"cublaslt", &facts.cublaslt},
                             {"cudnn", &facts.cudnn},
                             {"nccl", &facts.nccl},
                             {"blas", &facts.blas}}) {
    take(record, key, *member);
  }
}

}  // namespace

void absorb(Facts& facts, const Json& record) {
  std::optional<std::string> kind_name;
  take(record, "t", kind_name);
  const auto kind = kind_name ? from_text<Kind>(*kind_name) : std::nullopt;
  if (!kind) return;
  switch (*kind) {
    case Kind::header:
      return absorb_header(facts, record);
    case Kind::model:
      return absorb_model(facts, record);
    case Kind::effective:
      return absorb_effective(facts, record);
    case Kind::host:
      return absorb_host(facts, record);
    case Kind::software:
      return absorb_software(facts, record);
    case Kind::plan:
      take(record, "planned_bytes", facts.planned_bytes);
      take(record, "allocated_bytes", facts.allocated_bytes);
      take(record, "unplanned_bytes", facts.unplanned_bytes);
      return;
    case Kind::peak:
      take(record, "gpu", facts.gpu);
      take(record, "peak_tflops", facts.peak_tflops);
      take(record, "source", facts.peak_source);
      take(record, "gemm_measured_tflops", facts.gemm_measured_tflops);
      return;
    case Kind::step:
    case Kind::event:
    case Kind::profile:
    case Kind::row:
    case Kind::footer:
      return;
  }
}

Json row_json(const Facts& facts) {
  Facts cut = facts;
  const auto cut_to = [](std::size_t bytes,
                         std::initializer_list<std::optional<std::string>*> texts) {
    for (auto* text : texts) {
      if (*text) *text = cut_text(**text, bytes);
    }
  };
  cut_to(kDataBytes, {&cut.data});
  cut_to(kSourceBytes, {&cut.peak_source});
  cut_to(kImageBytes, {&cut.image});
  cut_to(kNameBytes, {&cut.device_name, &cut.hosts, &cut.blas});
  cut_to(kWordBytes, {&cut.label, &cut.job, &cut.user, &cut.cluster, &cut.gpu_requested, &cut.gpu});
  cut_to(kVersionBytes, {&cut.driver, &cut.trainer, &cut.commit, &cut.cuda, &cut.cublaslt,
                         &cut.cudnn, &cut.nccl, &cut.attention, &cut.recompute});
  if (cut.env) {
    std::size_t bytes = 0;
    std::erase_if(*cut.env, [&](const auto& variable) {
      bytes += variable.first.size() + variable.second.size() + 6;
      return bytes > kEnvBytes;
    });
  }
  // Every record says these itself, the footer project and run.
  for (auto* own : {&cut.project, &cut.run, &cut.id}) own->reset();
  for (auto* own : {&cut.rep, &cut.attempt, &cut.restart}) own->reset();
  Json row = Json::object();
  each_member(cut, [&](const char* key, const auto& member) {
    if (member) row[key] = *member;
  });
  return row;
}

std::vector<Json> row_records(const Facts& facts) {
  std::vector<Json> records;
  std::size_t bytes = 0;
  for (const auto& [key, value] : row_json(facts).items()) {
    const std::size_t size =
        key.size() + value.dump(-1, ' ', false, Json::error_handler_t::replace).size() + 4;
    if (records.empty() || bytes + size > kRowBytes) {
      Json& record = records.emplace_back();
      record["part"] = records.size();
      record["row"] = Json::object();
      bytes = 0;
    }
    records.back()["row"][key] = value;
    bytes += size;
  }
  return records;
}

void take_row(Facts& facts, const Json& record) {
  if (const auto row = record.find("row"); row != record.end() && row->is_object())
    each_member(facts, [&](const char* key, auto& member) { take(*row, key, member); });
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
