// SPDX-License-Identifier: Apache-2.0
#include "lib/flops/utilization.h"

#include <fmt/format.h>

namespace tessera::flops {

namespace {

constexpr double kPassesOfTraining = 3;         // forward + two gradients, each as large
constexpr double kPassesWithCheckpointing = 4;  // + the repeated forward

}  // namespace

ForwardFlops forward_flops(const model::Shape& shape, std::int64_t seq_len, Convention convention) {
  const double tokens = static_cast<double>(seq_len);
  const auto attention_width = static_cast<double>(shape.n_heads * shape.head_dim);
  const double square =
      4.0 * static_cast<double>(shape.n_layers) * attention_width * tokens * tokens;
  return {.weights = 2.0 * static_cast<double>(model::parameter_count(shape, seq_len)) * tokens,
          .attention = convention == Convention::causal ? square / 2 : square};
}

double model_flops_per_token(const model::Shape& shape, std::int64_t seq_len, Convention convention,
                             std::int64_t frozen) {
  return kPassesOfTraining * forward_flops(shape, seq_len, convention).total() /
             static_cast<double>(seq_len) -
         2.0 * static_cast<double>(frozen);
}

double recomputed_flops_per_token(const model::Shape& shape, std::int64_t seq_len,
                                  std::int64_t blocks) {
  const auto d = static_cast<double>(shape.d_model);
  const auto attention = static_cast<double>(model::attention_width(shape));
  const auto qkv = static_cast<double>(model::qkv_width(shape));
  const auto mlp_in = static_cast<double>(model::mlp_in_width(shape));
  const double weights = 2 * d * (qkv + attention + mlp_in);
  const double products = 4 * attention * static_cast<double>(seq_len);
  return static_cast<double>(blocks) * (weights + products);
}

double model_flops_per_s(const ForwardFlops& forward, const Throughput& throughput) {
  const double sequences_per_s = throughput.tokens_per_s / static_cast<double>(throughput.seq_len);
  return kPassesOfTraining * forward.total() * sequences_per_s /
         static_cast<double>(throughput.devices);
}

double mfu(const ForwardFlops& forward, const Throughput& throughput, double peak_flops_per_s) {
  return model_flops_per_s(forward, throughput) / peak_flops_per_s;
}

std::optional<double> hfu_mosaic(const ForwardFlops& forward, const Throughput& throughput,
                                 double peak_flops_per_s, Checkpointing checkpointing) {
  const double model = mfu(forward, throughput, peak_flops_per_s);
  switch (checkpointing) {
    case Checkpointing::none:
      return model;
    case Checkpointing::full:
      return kPassesWithCheckpointing / kPassesOfTraining * model;
    case Checkpointing::selective:
      return std::nullopt;
  }
  return std::nullopt;
}

std::vector<Term> terms_per_token(const model::Shape& shape, std::int64_t seq_len,
                                  Convention convention, Checkpointing checkpointing) {
  const ForwardFlops forward = forward_flops(shape, seq_len, convention);
  const auto per_token = [&](double flops) { return flops / static_cast<double>(seq_len); };
  const std::string weights = fmt::format("{} parameters", model::parameter_count(shape, seq_len));
  const std::string attention =
      fmt::format("{} layers x {} attention width x {} tokens{}", shape.n_layers,
                  shape.n_heads * shape.head_dim, seq_len,
                  convention == Convention::causal ? " / 2 (causal)" : "");
  std::vector<Term> terms = {
      {"weights, forward", "2 x " + weights, per_token(forward.weights), false},
      {"attention, forward", "4 x " + attention, per_token(forward.attention), false},
      {"weights, backward", "2 x 2 x " + weights, 2 * per_token(forward.weights), false},
      {"attention, backward", "2 x 4 x " + attention, 2 * per_token(forward.attention), false}};
  if (checkpointing == Checkpointing::full) {
    terms.push_back({"weights, recomputed", "2 x " + weights, per_token(forward.weights), true});
    terms.push_back(
        {"attention, recomputed", "4 x " + attention, per_token(forward.attention), true});
  }
  return terms;
}

}  // namespace tessera::flops
