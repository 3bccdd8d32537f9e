// SPDX-License-Identifier: Apache-2.0
// Everything a result row needs to know about a run, gathered from its records.
//
// The trainer absorbs each record that it writes and puts the sum into row records before the
// footer; collect reads those, or, where they or the footer are missing, absorbs the records
// itself. One function for both, so the end of a log alone gives the same row.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/shape.h"
#include "lib/point/told_settings.h"
#include "lib/runlog/record.h"

namespace tessera::runlog {

using Json = nlohmann::ordered_json;

// Effective values: what ran, not what was asked for. Absent = not known. Names are the keys of
// `row`.
struct Facts {
  // header
  std::optional<std::string> project, run, id, label, job, user, cluster, derived_from,
      gpu_requested, started_utc;
  std::optional<std::int64_t> rep, attempt, restart, repeats;
  std::optional<std::map<std::string, std::string>>
      env;  // the point's environment axes, cut at 150 bytes
  // model
  std::optional<std::int64_t> d_model, n_layers, n_heads, n_kv_heads, head_dim, ffn, vocab,
      n_params, n_trainable;
  std::optional<std::string> norm, positions, activation;
  std::optional<bool> tied;
  std::optional<std::string> biases;           // the layers that have one, "qkv,out,mlp,norm"
  std::optional<double> norm_eps, rope_theta;  // absent: those of a shape that says none
  // effective: the settings that a log tells, as they ran, and what follows from them
  sweep::ToldSettings settings;
  std::optional<std::int64_t> accum, shared_with;
  std::optional<std::string> recompute;
  std::optional<bool> emulated;
  // host
  std::optional<std::string> device_name, hosts, driver;  // hosts: first 4 and a count
  std::optional<std::int64_t> device_count, device_memory_bytes;
  // software
  std::optional<std::string> trainer, commit, image, cuda, cublaslt, cudnn, nccl, blas;
  // plan
  std::optional<std::int64_t> planned_bytes, allocated_bytes, unplanned_bytes;
  // peak
  std::optional<std::string>
      gpu;  // catalogue name of the device found; "cpu"; absent if no entry matches
  std::optional<double> peak_tflops, gemm_measured_tflops;
  std::optional<std::string> peak_source;
  std::optional<std::string> peak_disturbed;  // a hardware::Disturbance; absent: by nothing known

  // facts.ran<&sweep::Point::seq_len>()
  template <auto member>
  auto& ran() {
    return settings.get<member>();
  }
  template <auto member>
  const auto& ran() const {
    return settings.get<member>();
  }
  bool operator==(const Facts&) const = default;
};

// Takes over what `record` (a parsed record of any kind) says. Members of the wrong type are left
// out.
void absorb(Facts& facts, const Json& record);

// The members of the row: all that a record does not say of itself. Text is cut: env 150 bytes,
// peak_source 80, data, image 56, device_name, hosts and blas 64, versions and choices 24, other
// words 40.
Json row_json(const Facts& facts);
// The row in as many records as it needs, `{"part": 1, "row": {...}}` and so on.
std::vector<Json> row_records(const Facts& facts);
// Takes over the record's origin, and the part of the row that a row record has (of schema 1: the
// whole row, that a footer has). Members of the wrong type are left out.
void take_row(Facts& facts, const Json& record);

// The shape that ran, if all its parts are known.
std::optional<model::Shape> shape_of(const Facts& facts);

}  // namespace tessera::runlog
