// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/records.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/base/version.h"
#include "lib/point/told_settings.h"
#include "lib/runlog/keys.h"
#include "trainer/launch/place.h"

namespace tessera::trainer {

namespace keys = runlog::keys;

namespace {

// Bytes of the environment in one software record, and of one value in it.
constexpr std::size_t kPartBytes = 2500;
constexpr std::size_t kValueBytes = 1000;

// Returns "qkv,out,mlp,norm": the layers that have a bias.
std::string biases_text(const model::Biases& biases) {
  std::string text;
  for (const auto& [name, there] : {std::pair{"qkv", biases.qkv},
                                    {"out", biases.out},
                                    {"mlp", biases.mlp},
                                    {"norm", biases.norm}}) {
    if (there) text += (text.empty() ? "" : ",") + std::string(name);
  }
  return text;
}

// Adds a text. What is not known is absent, so an empty text adds nothing.
void put_text(Json& json, const char* key, const std::string& text) {
  if (!text.empty()) json[key] = text;
}

}  // namespace

Json header_fields(const sweep::RunSpec& spec, const std::string& job) {
  Json json;
  put_text(json, keys::job, spec.job.empty() ? job : spec.job);
  put_text(json, keys::user, spec.user);
  json[keys::cluster] = spec.point.cluster;
  json[keys::label] = spec.label;
  json[keys::repeats] = spec.repeats;
  put_text(json, keys::derived_from, spec.derived_from);
  json[keys::gpu_requested] = spec.point.gpu;
  json[keys::point] = Json::parse(sweep::point_json(spec.point));
  return json;
}

Json model_fields(const sweep::RunSpec& spec, const memory::Config& config) {
  const model::Shape& shape = spec.point.model;
  const std::int64_t parameters = model::parameter_count(shape, spec.point.seq_len);
  Json json;
  json[keys::label] = spec.label;
  json[keys::d_model] = shape.d_model;
  json[keys::n_layers] = shape.n_layers;
  json[keys::n_heads] = shape.n_heads;
  json[keys::n_kv_heads] = shape.n_kv_heads;
  json[keys::head_dim] = shape.head_dim;
  json[keys::ffn] = shape.ffn;
  json[keys::vocab] = shape.vocab;
  json[keys::max_seq_len] = spec.point.seq_len;
  json[keys::norm] = to_text(shape.norm);
  json[keys::activation] = to_text(shape.activation);
  json[keys::positions] = to_text(shape.positions);
  json[keys::norm_eps] = shape.norm_eps;
  if (shape.positions == model::Positions::rope) json[keys::rope_theta] = shape.rope_theta;
  json[keys::biases] = biases_text(shape.biases);
  json[keys::tied] = shape.tied;
  json[keys::n_params] = parameters;
  json[keys::n_trainable] = memory::trained_count(config);
  return json;
}

Json effective_fields(const sweep::RunSpec& spec, const Engine& engine, int threads,
                      const Gpu* gpu) {
  const sweep::Point& point = spec.point;
  const memory::Config& config = engine.config();
  // Begin with what was asked for and replace what the trainer decided.
  sweep::ToldSettings ran = sweep::told_settings(point);
  ran.get<&sweep::Point::microbatch_size>() = config.microbatch;
  ran.get<&sweep::Point::sharding_strategy>() = to_text(Sharding::no_shard);
  ran.get<&sweep::Point::attention>() = gpu != nullptr ? gpu->attention() : "flash";
  ran.get<&sweep::Point::threads>() = threads;
  // A CPU has no other way.
  ran.get<&sweep::Point::deterministic>() = gpu == nullptr || point.deterministic;
  ran.get<&sweep::Point::fused_gelu>() = memory::fuses_gelu(config);
  Json json;
  sweep::ToldSettings::each(ran, [&](const auto& field, const auto& value) {
    if (value) json[field.key] = *value;
  });
  json[keys::accum] = engine.microbatches();
  // "full", or "full first-8" if only some blocks are recomputed.
  json[keys::recompute] =
      point.checkpointing_blocks == memory::kAllBlocks
          ? std::string(to_text(config.checkpointing))
          : fmt::format("{} {}", to_text(config.checkpointing), point.checkpointing_blocks);
  json[keys::shared_with] = spec.shared_with;
  json[keys::emulated] = spec.point.gpu == "cpu" && !is_f32(config.precision);
  return json;
}

Json data_fields(const DataFacts& data) {
  Json json;
  json[keys::data_tokens] = data.tokens;
  json[keys::data_crc32] = fmt::format("{:08x}", data.crc32);
  json[keys::data_epochs] = data.epochs;
  return json;
}

std::vector<Json> host_fields(const std::vector<RankFacts>& ranks) {
  std::map<int, Json> nodes;
  for (const RankFacts& rank : ranks) {
    Json& json = nodes[rank.node];
    if (json.is_null()) {
      put_text(json, keys::host, rank.host);
      json[keys::node] = rank.node;
      json[keys::devices] = Json::array();
      json[keys::count] = 0;
      if (rank.memory_bytes > 0) json[keys::memory_bytes] = rank.memory_bytes;
    }
    // All devices are of one kind: one name stands for all, because many would not fit.
    if (json[keys::devices].empty()) json[keys::devices].push_back(rank.device);
    json[keys::count] = json[keys::count].get<int>() + 1;
  }
  std::vector<Json> records;
  for (auto& [node, json] : nodes) records.push_back(std::move(json));
  return records;
}

bool may_be_recorded(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"NCCL_",     "CUDA_", "CUBLAS", "OMP_", "GOMP_",
                                            "OPENBLAS_", "UCX_",  "FI_",    "GLOO_"};
  return tells_of_job(name) ||
         std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

// The record is split into parts of limited size, because messages are limited and the environment
// may be long. Sorted, so that equal environments give equal records.
std::vector<Json> software_fields(const DeviceInfo& device, const Gpu* gpu) {
  std::vector<Json> parts(1);
  Json& first = parts.front();
  first[keys::part] = 1;
  first[keys::trainer] = kVersion;
  put_text(first, keys::commit, kCommit);
  if (const char* image = std::getenv("TESSERA_IMAGE")) put_text(first, keys::image, image);
  put_text(first, keys::blas, device.blas);
  put_text(first, keys::vector_isa, device.vector_isa);
  if (gpu != nullptr) {
    const GpuSoftware software = gpu->software();
    put_text(first, keys::cuda, software.cuda);
    put_text(first, keys::cublaslt, software.cublaslt);
    put_text(first, keys::cudnn, software.cudnn);
    put_text(first, keys::algorithms, gpu->choices_hash());
  }

  // The environment, by an allow-list: other variables may be secrets.
  std::vector<std::string> recorded;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (may_be_recorded(*entry)) recorded.emplace_back(*entry);
  }
  std::ranges::sort(recorded);
  std::size_t bytes = 0;
  for (const std::string& entry : recorded) {
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string name = entry.substr(0, std::min(equals, kValueBytes));
    const std::string value =
        entry.substr(std::min(equals + 1, entry.size())).substr(0, kValueBytes);
    // A byte may become six in JSON. Such values are rare, so only the longest need the exact size.
    const std::size_t size =
        Json(value).dump(-1, ' ', false, Json::error_handler_t::replace).size() + name.size() + 4;
    if (size > kPartBytes) continue;
    if (bytes + size > kPartBytes) {
      parts.emplace_back()[keys::part] = parts.size();
      bytes = 0;
    }
    parts.back()[keys::env][name] = value;
    bytes += size;
  }
  return parts;
}

Json plan_fields(const Engine& engine, const Gpu* gpu) {
  Json json;
  json[keys::planned_bytes] = engine.plan().total_bytes();
  json[keys::allocated_bytes] = engine.plan().total_bytes();
  if (gpu != nullptr) json[keys::unplanned_bytes] = gpu->unplanned_bytes();
  return json;
}

Json gpu_fields(const Gpu& gpu) {
  const GpuFacts facts = gpu.facts();
  Json json;
  put_text(json, keys::driver, gpu.software().driver);
  put_text(json, keys::pci_bus_id, facts.pci_bus_id);
  json[keys::compute_capability] = facts.compute_capability;
  json[keys::multiprocessors] = facts.multiprocessors;
  if (facts.sm_clock_max_mhz) json[keys::sm_clock_max_mhz] = *facts.sm_clock_max_mhz;
  if (facts.power_limit_w) json[keys::power_limit_w] = *facts.power_limit_w;
  return json;
}

// Returns texts like "attention <shape>: cuDNN engine 6, 0 bytes of workspace (number 1 of 4)".
std::vector<Json> choice_events(const Gpu& gpu) {
  std::vector<Json> events;
  for (const GpuChoice& choice : gpu.choices()) {
    std::string text =
        fmt::format("{} {}: {} ({}", choice.op, choice.shape, choice.choice, choice.from);
    if (choice.seconds) text += fmt::format(", {:.1f} us", 1e6 * *choice.seconds);
    events.push_back({{keys::kind, "choice"}, {keys::text, text + ")"}});
  }
  return events;
}

Json peak_fields(const MeasuredPeak& peak) {
  Json json;
  put_text(json, keys::gpu, peak.gpu);
  if (peak.peak.tflops > 0) json[keys::peak_tflops] = peak.peak.tflops;
  put_text(json, keys::source, peak.peak.source);
  if (peak.peak.disturbed) json[keys::disturbed] = to_text(*peak.peak.disturbed);
  // A peak that was measured here is what products reach. On a GPU that figure stands beside it.
  if (peak.measured_here) json[keys::gemm_measured_tflops] = peak.peak.tflops;
  if (peak.gemm_tflops) json[keys::gemm_measured_tflops] = *peak.gemm_tflops;
  return json;
}

Json step_fields(const runlog::StepSample& sample) {
  Json json;
  json[keys::step] = sample.step;
  json[keys::warmup] = sample.warmup;
  json[keys::seconds] = sample.seconds;
  json[keys::tokens] = sample.tokens;
  if (std::isfinite(sample.loss)) json[keys::loss] = sample.loss;
  if (std::isfinite(sample.grad_norm)) json[keys::grad_norm] = sample.grad_norm;
  json[keys::data_wait_s] = sample.data_wait_s;
  if (sample.issue_s) json[keys::issue_s] = *sample.issue_s;
  json[keys::skipped] = sample.skipped;
  return json;
}

}  // namespace tessera::trainer
