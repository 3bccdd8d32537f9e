// SPDX-License-Identifier: Apache-2.0
// Records as a trainer would write them, for tests of writer, footer and reader.
#pragma once

#include "lib/runlog/facts.h"
#include "lib/runlog/footer.h"

namespace tessera::test {

inline runlog::Facts sample_facts() {
  runlog::Facts facts;
  facts.project = "tput";
  facts.run = "tput--7b-s2048-8g-1f0c9a3b77de";
  facts.id = "1f0c9a3b77de";
  facts.label = "7b";
  facts.user = "kim";
  facts.cluster = "hgx";
  facts.gpu_requested = "h100_80gb";
  facts.rep = 1;
  facts.attempt = 1;
  facts.restart = 0;
  facts.repeats = 3;
  facts.env = std::map<std::string, std::string>{{"NCCL_PROTO", "LL128"}};
  facts.d_model = 4096;
  facts.n_layers = 32;
  facts.n_heads = 32;
  facts.n_kv_heads = 32;
  facts.head_dim = 128;
  facts.ffn = 16384;
  facts.vocab = 50368;
  facts.n_params = 6658859008;
  facts.n_trainable = 6658859008;
  facts.norm = "layernorm";
  facts.positions = "learned";
  facts.activation = "gelu_erf";
  facts.biases = "qkv,out,mlp,norm";
  facts.tied = true;
  facts.ran<&sweep::Point::gpus>() = 8;
  facts.ran<&sweep::Point::nodes>() = 1;
  facts.ran<&sweep::Point::seq_len>() = 2048;
  facts.ran<&sweep::Point::global_batch>() = 48;
  facts.ran<&sweep::Point::microbatch_size>() = 6;
  facts.accum = 1;
  facts.ran<&sweep::Point::threads>() = 0;
  facts.shared_with = 0;
  facts.ran<&sweep::Point::steps>() = 30;
  facts.ran<&sweep::Point::warmup>() = 10;
  facts.ran<&sweep::Point::seed>() = 17;
  facts.ran<&sweep::Point::precision>() = "amp_bf16";
  facts.ran<&sweep::Point::mixed_precision>() = "DEFAULT";
  facts.ran<&sweep::Point::sharding_strategy>() = "FULL_SHARD";
  facts.ran<&sweep::Point::activation_checkpointing>() = "none";
  facts.recompute = "none";
  facts.ran<&sweep::Point::attention>() = "cudnn";
  facts.ran<&sweep::Point::data>() = "synthetic";
  facts.ran<&sweep::Point::activation_cpu_offload>() = false;
  facts.ran<&sweep::Point::deterministic>() = false;
  facts.ran<&sweep::Point::fused_gelu>() = false;
  facts.emulated = false;
  facts.device_name = "NVIDIA H100 80GB HBM3";
  facts.hosts = "n03";
  facts.device_count = 8;
  facts.device_memory_bytes = 85520809984;
  facts.trainer = "0.1.0";
  facts.commit = "ab12";
  facts.gpu = "h100_80gb";
  facts.peak_tflops = 989.5;
  facts.peak_source = "catalogue: H100 SXM dense bf16";
  return facts;
}

inline runlog::Footer sample_footer() {
  runlog::Footer footer;
  footer.status = runlog::Status::ok;
  footer.ended_by = runlog::EndedBy::completed;
  footer.steps = {.warmup = 10,
                  .measured = 20,
                  .measured_s = 23.05,
                  .tokens = 1966080,
                  .data_wait_s = 0.004,
                  .skipped = 0,
                  .median_s = 1.1519,
                  .mean_s = 1.1525,
                  .p5_s = 1.149,
                  .p95_s = 1.161,
                  .loss_first = 10.9,
                  .loss_last = 9.87,
                  .grad_norm_last = 2.9};
  footer.startup_s = 12.1;
  footer.wall_s = 47.8;
  footer.mem_peak_bytes = 61203283968;
  return footer;
}

}  // namespace tessera::test
