// SPDX-License-Identifier: Apache-2.0
// Points made of the published rows, read by the tests' own reader.
#pragma once

#include <string>
#include <vector>

#include "lib/model/model_file.h"
#include "lib/point/point.h"
#include "tests/csv.h"

namespace tessera::test {

// A point on GPUs with a built-in model; 30 steps, 10 of them warm-up.
inline sweep::Point gpu_point(const std::string& model, std::int64_t seq_len,
                              std::int64_t global_batch, std::int64_t gpus,
                              const std::string& gpu) {
  sweep::Point point;
  point.model = model::find_model(model, "").shape;
  point.seq_len = seq_len;
  point.global_batch = global_batch;
  point.microbatch_size = 1;
  point.gpus = gpus;
  point.nodes = (gpus + 7) / 8;
  point.gpu = gpu;
  point.cluster = "mpt-published";
  return point;
}

inline sweep::Point point_of(const CsvRow& row) {
  sweep::Point point =
      gpu_point(row.at("model"), std::stoll(row.at("seq_len")),
                std::stoll(row.at("global_batch_size")), std::stoll(row.at("gpus")), row.at("gpu"));
  point.precision = row.at("precision") == "amp_fp8" ? Precision::amp_fp8 : Precision::amp_bf16;
  if (row.at("act_ckpt") == "True") point.activation_checkpointing = Checkpointing::full;
  return point;
}

inline const std::vector<CsvRow>& mpt_rows() {
  static const std::vector<CsvRow> rows = read_csv("yamls/reference/mpt-published.csv");
  return rows;
}

}  // namespace tessera::test
