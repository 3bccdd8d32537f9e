// SPDX-License-Identifier: Apache-2.0
// Small inventory for tests of expansion: four clusters, two models, no files.
#pragma once

#include <string>

#include "lib/sweep/expand.h"
#include "lib/sweep/sweep_file.h"

namespace tessera::test {

inline model::Model small_model(const std::string& name, std::int64_t n_layers) {
  return {.name = name,
          .shape = {.d_model = 64,
                    .n_layers = n_layers,
                    .n_heads = 2,
                    .n_kv_heads = 2,
                    .head_dim = 32,
                    .ffn = 256,
                    .vocab = 512,
                    .biases = {}},
          .max_seq_len = 128,
          .lr = 1e-3,
          .source = {}};
}

inline sweep::Inventory small_inventory() {
  sweep::Inventory inventory;
  inventory.models["small"] = small_model("small", 2);
  inventory.models["twin"] = small_model("twin", 2);  // the shape of small
  inventory.models["large"] = small_model("large", 4);
  inventory.clusters["local"] = {
      .name = "local", .gpus = {{"cpu", 1, 0}}, .identity = {}, .cpus = 8};
  inventory.clusters["hgx"] = {
      .name = "hgx", .gpus = {{"h100_80gb", 8, 4}}, .identity = {{"env.A", "1"}}, .cpus = 0};
  inventory.clusters["mixed"] = {.name = "mixed",
                                 .gpus = {{"h100_80gb", 8, 1}, {"a100_40gb", 4, 2}},
                                 .identity = {},
                                 .cpus = 0};
  inventory.clusters["farm"] = {.name = "farm", .gpus = {{"cpu", 2, 4}}, .identity = {}, .cpus = 0};
  hardware::Gpu a100{.name = "a100_40gb",
                     .match = {},
                     .not_match = {},
                     .memory_gib = 39,
                     .reserve_gib = 1,
                     .peak_tflops = {{"amp_bf16", 312}, {"amp_fp8", std::nullopt}},
                     .source = {}};
  inventory.catalogue.gpus.push_back(a100);
  return inventory;
}

inline sweep::Grid grid_of(const std::string& yaml) {
  return sweep::parse_sweep(parse_yaml("tessera_sweep: 1\n" + yaml, "s.yaml"), "s.yaml");
}

inline sweep::Expansion expanded(const std::string& yaml) {
  return sweep::expand(grid_of(yaml), small_inventory());
}

}  // namespace tessera::test
