// SPDX-License-Identifier: Apache-2.0
// The published MPT tables (yamls/reference/mpt-published.csv) as what a run of a point may reach:
// the MFU of the row that is nearest to it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/point/point.h"

namespace tessera::sweep {

struct PublishedRow {
  std::string model;  // as published: "7b"
  std::int64_t n_params = 0;
  std::int64_t seq_len = 0;
  std::int64_t gpus = 0;
  std::string gpu;  // name in the GPU catalogue
  Precision precision = Precision::amp_bf16;
  bool full_checkpointing = false;
  std::int64_t global_batch = 0;  // sequences a step, over all devices
  double mfu = 0;                 // fraction, of the dense peak in the built-in catalogue
};

// Error(input) at `name`:line for a cell that is no such value.
std::vector<PublishedRow> parse_published_rows(std::string_view csv, const std::string& name);

// Those that come with Tessera, read at the first call. Thread-safe. Error(io) if the file cannot
// be read.
const std::vector<PublishedRow>& published_rows();

// How far a row is from a point; nothing where GPU or precision differ: no figure of one says
// anything about the other. Otherwise the sum of
//   1    a doubling of the parameters
//   1/2  a doubling of the sequence
//   1/4  a doubling of the devices
//   1    where one computes all activations again and the other does not
//   1/20 a doubling of the tokens that a device computes a step
// whichever of the two is larger. Points whose checkpointing is for some blocks only count as
// checkpointed, selective ones as not (they repeat no matrix product).
std::optional<double> distance(const Point& point, const PublishedRow& row);

// Rows farther away than this say nothing about the point: 8 times the parameters, say, or twice
// and 16 times the sequence. Of the published rows, any two of one GPU and precision that are
// nearer differ in MFU by 7 % in the median and by a factor of 1.6 at most.
inline constexpr double kFarthest = 3;

// The nearest row within kFarthest, of several equally near the first; nullptr if there is none.
const PublishedRow* nearest_row(const Point& point, std::span<const PublishedRow> rows);

}  // namespace tessera::sweep
