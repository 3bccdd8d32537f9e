// SPDX-License-Identifier: Apache-2.0
#include "trainer/capabilities.h"

#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/base/version.h"
#include "lib/model/settings.h"
#include "lib/runlog/record.h"
#include "trainer/comm/gloo/gloo.h"
#include "trainer/device/gpu.h"

namespace tessera::trainer {

namespace {

constexpr int kMostGpuRanks = 1;

template <std::size_t... I>
nlohmann::ordered_json operation_names(std::index_sequence<I...>) {
  return nlohmann::ordered_json::array({op_name(Op{std::in_place_index<I>})...});
}

bool has_gloo() {
  try {
    open_gloo(gloo_module_path());
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Returns what this build can train on a GPU, whether or not this machine has one. accept.h refuses
// everything else.
nlohmann::ordered_json on_any_gpu() {
  nlohmann::ordered_json gpu;
  gpu["precisions"] = nlohmann::ordered_json::array(
      {to_text(Precision::fp32), to_text(Precision::tf32), to_text(Precision::amp_bf16)});
  gpu["sharding"] = nlohmann::ordered_json::array({to_text(Sharding::no_shard)});
  gpu["max_ranks"] = kMostGpuRanks;
  return gpu;
}

}  // namespace

std::string capabilities_json() {
  const DeviceInfo device = cpu_device(1)->info();
  nlohmann::ordered_json json;
  json["trainer"] = kVersion;
  json["commit"] = kCommit;
  json["cpu"] = device.name;
  json["vector_isa"] = device.vector_isa;
  json["blas"] = device.blas;
  json["cpus"] = usable_cpus();
  if (device.memory_bytes > 0) json["memory_bytes"] = device.memory_bytes;
  const GpuPresence gpus = gpu_presence();
  json["devices"] = nlohmann::ordered_json::array({"cpu"});
  if (!gpus.names.empty()) json["devices"].push_back("cuda");
  nlohmann::ordered_json cuda;
  cuda["gpus"] = gpus.names;
  if (!gpus.why_none.empty()) cuda["none"] = gpus.why_none;
  cuda["max_ranks"] = kMostGpuRanks;
  if (gpus.is_built) {
    cuda["toolkit"] = gpus.cuda;
    cuda["built_with_cudnn"] = gpus.has_cudnn;
    cuda["architectures"] = gpus.architectures;
  }
  json["cuda"] = std::move(cuda);
  json["gpu"] = gpus.is_built ? on_any_gpu() : nullptr;
  json["precisions"] = nlohmann::ordered_json::array({to_text(Precision::fp32)});
  if (!gpus.names.empty()) json["precisions"].push_back(to_text(Precision::tf32));
  json["precisions"].push_back(to_text(Precision::amp_bf16));
  json["mixed_precision"] = all_names<MixedPrecision>();
  json["sharding"] = {to_text(Sharding::no_shard)};
  json["activation_checkpointing"] = all_names<Checkpointing>();
  json["norms"] = all_names<model::Norm>();
  json["positions"] = all_names<model::Positions>();
  json["activations"] = all_names<model::Activation>();
  json["untied_head"] = true;
  json["activation_cpu_offload"] = true;
  json["data"] = {"synthetic", "file"};
  json["max_ranks"] = has_gloo() ? comm::kMostGlooRanks : 1;
  json["microbatch_auto"] = true;
  json["operations"] = operation_names(std::make_index_sequence<std::variant_size_v<Op>>());
  json["log_schema"] = runlog::kSchema;
  return json.dump(2);
}

}  // namespace tessera::trainer
