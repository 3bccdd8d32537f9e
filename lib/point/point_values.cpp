#include "lib/point/point_values.h"

#include <fmt/format.h>

#include <map>

namespace tessera::sweep {

std::vector<std::pair<std::string, std::string>> values_of(const Point& point) {
  const Point usual;
  const auto name = [](auto value) { return std::string(to_text(value)); };
  std::map<std::string, std::string> values{
      {"seq_len", std::to_string(point.seq_len)},
      {"global_batch", std::to_string(point.global_batch)},
      {"microbatch_size", point.microbatch_size == kAutoMicrobatch
                              ? std::string("auto")
                              : std::to_string(point.microbatch_size)},
      {"precision", name(point.precision)},
      {"gpus", std::to_string(point.gpus)},
      {"gpu", point.gpu},
      {"cluster", point.cluster}};
  const auto unless_usual = [&](const char* key, const auto& value, const auto& default_value,
                                const std::string& text) {
    if (value != default_value) values[key] = text;
  };
  unless_usual("mixed_precision", point.mixed_precision, usual.mixed_precision,
               name(point.mixed_precision));
  // One device shards nothing, whatever was asked for.
  unless_usual("sharding_strategy", point.sharding_strategy,
               point.gpus == 1 ? Sharding::no_shard : usual.sharding_strategy,
               name(point.sharding_strategy));
  unless_usual("hybrid_group", point.hybrid_group, usual.hybrid_group,
               std::to_string(point.hybrid_group));
  unless_usual("activation_checkpointing", point.activation_checkpointing,
               usual.activation_checkpointing, name(point.activation_checkpointing));
  unless_usual("checkpointing_blocks", point.checkpointing_blocks, usual.checkpointing_blocks,
               point.checkpointing_blocks);
  unless_usual("activation_cpu_offload", point.activation_cpu_offload, false, "true");
  unless_usual("attention", point.attention, usual.attention, name(point.attention));
  unless_usual("threads", point.threads, usual.threads, std::to_string(point.threads));
  unless_usual("steps", point.steps, usual.steps, std::to_string(point.steps));
  unless_usual("warmup", point.warmup, usual.warmup, std::to_string(point.warmup));
  unless_usual("exact_steps", point.exact_steps, false, "true");
  unless_usual("deterministic", point.deterministic, false, "true");
  unless_usual("fused_gelu", point.fused_gelu, false, "true");
  unless_usual("data", point.data, usual.data, point.data);
  unless_usual("seed", point.seed, usual.seed, std::to_string(point.seed));
  for (const auto& [variable, value] : point.env) values["env." + variable] = value;
  return {values.begin(), values.end()};
}

}  // namespace tessera::sweep
