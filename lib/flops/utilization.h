// SPDX-License-Identifier: Apache-2.0
// How much of a device's peak a training run used: MFU, HFU, model TFLOP/s.
//
// Every function is pure. Rates are per second, FLOPs are floating-point operations (a multiply-add
// counts 2), peaks are dense and per device, MFU and HFU are fractions. docs/formulas.md derives
// each convention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/model/settings.h"
#include "lib/model/shape.h"

namespace tessera::flops {

// mosaic: all parameters, attention over the full square. causal: attention halved, as only the
// lower triangle has to be computed.
enum class Convention : std::uint8_t { mosaic, causal };

// FLOPs of one sequence in one forward pass.
struct ForwardFlops {
  double weights = 0;    // 2 * n_params per token
  double attention = 0;  // QK^T and AV
  double total() const { return weights + attention; }
};

ForwardFlops forward_flops(const model::Shape& shape, std::int64_t seq_len,
                           Convention convention = Convention::mosaic);

// FLOPs of one token in one training step, by convention: forward, gradient of activations,
// gradient of weights. Of parameters that are not trained (`frozen` of them) no gradient is
// counted.
double model_flops_per_token(const model::Shape& shape, std::int64_t seq_len,
                             Convention convention = Convention::mosaic, std::int64_t frozen = 0);

// FLOPs of one token that a backward pass computes again when `blocks` blocks keep their input
// only: every product of a block's forward pass but the MLP's last, whose result nobody needs,
// attention over the full square (MFU's convention). Other blocks compute no product again.
// hfu_recompute counts model_flops_per_token and these.
double recomputed_flops_per_token(const model::Shape& shape, std::int64_t seq_len,
                                  std::int64_t blocks);

// What a run achieved. `tokens_per_s` is over all devices.
struct Throughput {
  double tokens_per_s = 0;
  std::int64_t seq_len = 0;
  std::int64_t devices = 1;
};

// Model FLOPs per second and device.
double model_flops_per_s(const ForwardFlops& forward, const Throughput& throughput);

// Fraction of `peak_flops_per_s`.
double mfu(const ForwardFlops& forward, const Throughput& throughput, double peak_flops_per_s);

// HFU counts what is computed again in the backward pass: the whole forward pass under full
// checkpointing, nothing under none. Nothing for other masks: the convention does not know them.
std::optional<double> hfu_mosaic(const ForwardFlops& forward, const Throughput& throughput,
                                 double peak_flops_per_s, Checkpointing checkpointing);

// One line of the calculation, for people: "weights, forward", "2 x 6658859008 parameters",
// 1.33e10.
struct Term {
  std::string name;
  std::string formula;  // with its numbers
  double flops_per_token = 0;
  bool recompute = false;  // counts in HFU only
};

// Terms whose sum without the recompute ones is model_flops_per_token, and with them what HFU
// counts.
std::vector<Term> terms_per_token(const model::Shape& shape, std::int64_t seq_len,
                                  Convention convention, Checkpointing checkpointing);

}  // namespace tessera::flops

namespace tessera {
template <>
struct Names<flops::Convention> {
  static constexpr std::pair<flops::Convention, std::string_view> table[] = {
      {flops::Convention::mosaic, "mosaic"}, {flops::Convention::causal, "causal"}};
};
}  // namespace tessera
