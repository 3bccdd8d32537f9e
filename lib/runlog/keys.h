// SPDX-License-Identifier: Apache-2.0
// The keys of the records of a run log, each said once, but for a point's settings, which
// lib/point/fields.h says: writer, reader, facts and columns use these names, and docs/formats.md
// lists them. A key of several records is named where it comes first.
#pragma once

namespace tessera::runlog::keys {

// Every record. Header and footer also have project, run and utc.
inline constexpr const char* schema = "tessera";
inline constexpr const char* t = "t";
inline constexpr const char* project = "project";
inline constexpr const char* run = "run";
inline constexpr const char* id = "id";
inline constexpr const char* rep = "rep";
inline constexpr const char* try_ = "try";
inline constexpr const char* restart = "restart";
inline constexpr const char* rank = "rank";
inline constexpr const char* n = "n";
inline constexpr const char* utc = "utc";
inline constexpr const char* mono_s = "mono_s";

// header
inline constexpr const char* job = "job";
inline constexpr const char* user = "user";
inline constexpr const char* cluster = "cluster";
inline constexpr const char* label = "label";
inline constexpr const char* repeats = "repeats";
inline constexpr const char* derived_from = "derived_from";
inline constexpr const char* gpu_requested = "gpu_requested";
inline constexpr const char* point = "point";
inline constexpr const char* env = "env";

// model
inline constexpr const char* d_model = "d_model";
inline constexpr const char* n_layers = "n_layers";
inline constexpr const char* n_heads = "n_heads";
inline constexpr const char* n_kv_heads = "n_kv_heads";
inline constexpr const char* head_dim = "head_dim";
inline constexpr const char* ffn = "ffn";
inline constexpr const char* vocab = "vocab";
inline constexpr const char* max_seq_len = "max_seq_len";
inline constexpr const char* norm = "norm";
inline constexpr const char* activation = "activation";
inline constexpr const char* positions = "positions";
inline constexpr const char* norm_eps = "norm_eps";
inline constexpr const char* rope_theta = "rope_theta";
inline constexpr const char* biases = "biases";
inline constexpr const char* tied = "tied";
inline constexpr const char* n_params = "n_params";
inline constexpr const char* n_trainable = "n_trainable";

// effective, beside the settings (lib/point/fields.h)
inline constexpr const char* accum = "accum";
inline constexpr const char* recompute = "recompute";
inline constexpr const char* shared_with = "shared_with";
inline constexpr const char* data_tokens = "data_tokens";
inline constexpr const char* data_crc32 = "data_crc32";
inline constexpr const char* data_epochs = "data_epochs";
inline constexpr const char* emulated = "emulated";

// host
inline constexpr const char* host = "host";
inline constexpr const char* node = "node";
inline constexpr const char* devices = "devices";
inline constexpr const char* count = "count";
inline constexpr const char* memory_bytes = "memory_bytes";
inline constexpr const char* driver = "driver";
inline constexpr const char* pci_bus_id = "pci_bus_id";
inline constexpr const char* compute_capability = "compute_capability";
inline constexpr const char* multiprocessors = "multiprocessors";
inline constexpr const char* sm_clock_max_mhz = "sm_clock_max_mhz";
inline constexpr const char* power_limit_w = "power_limit_w";

// software
inline constexpr const char* part = "part";
inline constexpr const char* trainer = "trainer";
inline constexpr const char* commit = "commit";
inline constexpr const char* image = "image";
inline constexpr const char* blas = "blas";
inline constexpr const char* vector_isa = "vector_isa";
inline constexpr const char* cuda = "cuda";
inline constexpr const char* cublaslt = "cublaslt";
inline constexpr const char* cudnn = "cudnn";
inline constexpr const char* nccl = "nccl";
inline constexpr const char* algorithms = "algorithms";

// plan
inline constexpr const char* planned_bytes = "planned_bytes";
inline constexpr const char* allocated_bytes = "allocated_bytes";
inline constexpr const char* unplanned_bytes = "unplanned_bytes";

// peak
inline constexpr const char* gpu = "gpu";
inline constexpr const char* peak_tflops = "peak_tflops";
inline constexpr const char* source = "source";
inline constexpr const char* disturbed = "disturbed";
inline constexpr const char* gemm_measured_tflops = "gemm_measured_tflops";

// step
inline constexpr const char* step = "step";
inline constexpr const char* warmup = "warmup";
inline constexpr const char* seconds = "seconds";
inline constexpr const char* tokens = "tokens";
inline constexpr const char* loss = "loss";
inline constexpr const char* grad_norm = "grad_norm";
inline constexpr const char* data_wait_s = "data_wait_s";
inline constexpr const char* issue_s = "issue_s";
inline constexpr const char* skipped = "skipped";

// event
inline constexpr const char* kind = "kind";
inline constexpr const char* text = "text";
inline constexpr const char* requested_bytes = "requested_bytes";
inline constexpr const char* free_bytes = "free_bytes";

// profile
inline constexpr const char* steps = "steps";
inline constexpr const char* step_s = "step_s";
inline constexpr const char* operations = "operations";
inline constexpr const char* op = "op";
inline constexpr const char* phase = "phase";
inline constexpr const char* class_ = "class";
inline constexpr const char* gb_per_s = "gb_per_s";
inline constexpr const char* gflop_per_s = "gflop_per_s";

// row, beside keys of other records
inline constexpr const char* row = "row";
inline constexpr const char* started_utc = "started_utc";
inline constexpr const char* device_name = "device_name";
inline constexpr const char* hosts = "hosts";
inline constexpr const char* device_count = "device_count";
inline constexpr const char* device_memory_bytes = "device_memory_bytes";
inline constexpr const char* peak_source = "peak_source";
inline constexpr const char* peak_disturbed = "peak_disturbed";

// footer
inline constexpr const char* status = "status";
inline constexpr const char* ended_by = "ended_by";
inline constexpr const char* reason = "reason";
inline constexpr const char* exit = "exit";
inline constexpr const char* measured = "measured";
inline constexpr const char* measured_s = "measured_s";
inline constexpr const char* median = "median";
inline constexpr const char* mean = "mean";
inline constexpr const char* p5 = "p5";
inline constexpr const char* p95 = "p95";
inline constexpr const char* max_over_ranks = "max_over_ranks";
inline constexpr const char* token_basis = "token_basis";
inline constexpr const char* loss_first = "loss_first";
inline constexpr const char* loss_last = "loss_last";
inline constexpr const char* grad_norm_last = "grad_norm_last";
inline constexpr const char* steps_skipped = "steps_skipped";
inline constexpr const char* startup_s = "startup_s";
inline constexpr const char* wall_s = "wall_s";
inline constexpr const char* mem_peak_bytes = "mem_peak_bytes";
inline constexpr const char* comm_exposed_s = "comm_exposed_s";
inline constexpr const char* sm_clock_min_mhz = "sm_clock_min_mhz";
inline constexpr const char* power_w_mean = "power_w_mean";
inline constexpr const char* temperature_c_max = "temperature_c_max";
inline constexpr const char* throttled = "throttled";
inline constexpr const char* other_processes = "other_processes";
inline constexpr const char* flops_executed_per_token = "flops_executed_per_token";
inline constexpr const char* flops_recompute_per_token = "flops_recompute_per_token";
inline constexpr const char* cpu_share = "cpu_share";
inline constexpr const char* budget = "budget";
inline constexpr const char* gemm = "gemm";
inline constexpr const char* attention = "attention";
inline constexpr const char* memory_bound = "memory_bound";
inline constexpr const char* optimizer = "optimizer";
inline constexpr const char* offload = "offload";
inline constexpr const char* data_wait = "data_wait";
inline constexpr const char* other = "other";
inline constexpr const char* rows = "rows";

}  // namespace tessera::runlog::keys
