// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/trainers/capabilities.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lib/base/command.h"
#include "lib/base/cuda_architectures.h"
#include "lib/base/error.h"
#include "lib/point/data_path.h"
#include "lib/schedule/config.h"

namespace tessera::submit {

namespace {

constexpr std::string_view kCpu = "cpu";
constexpr std::string_view kCuda = "cuda";

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

template <class T>
Lack of_setting(std::string_view field, const T& value, const std::string& why) {
  return {.what = fmt::format("{} {}", field, value), .why = why};
}

Lack of_gpu(const sweep::Point& point, std::string why) {
  return {.of = Lack::Of::gpu, .what = fmt::format("gpu {}", point.gpu), .why = std::move(why)};
}

Lack one_of(std::string_view field, std::string_view value, const std::vector<std::string>& names) {
  return of_setting(field, value, fmt::format("the trainer has {}", fmt::join(names, ", ")));
}

}  // namespace

Capabilities parse_capabilities(const Value& json) {
  // Not through Fields: a newer trainer may say more.
  const auto member = [&](std::string_view key) -> const Value& {
    const Value* found = json.find(key);
    if (found == nullptr) bad_value(json, fmt::format("lacks '{}'", key));
    return *found;
  };
  constexpr std::int64_t kMany = 1 << 20;
  Capabilities all;
  all.cpu = as_text(member("cpu"));
  all.blas = as_text(member("blas"));
  all.cpus = static_cast<int>(as_integer(member("cpus"), 1, kMany));
  all.devices = as_texts(member("devices"));
  all.precisions = as_texts(member("precisions"));
  all.mixed_precision = as_texts(member("mixed_precision"));
  all.sharding = as_texts(member("sharding"));
  all.activation_checkpointing = as_texts(member("activation_checkpointing"));
  all.norms = as_texts(member("norms"));
  all.positions = as_texts(member("positions"));
  all.activations = as_texts(member("activations"));
  all.data = as_texts(member("data"));
  all.untied_head = as_bool(member("untied_head"));
  all.activation_cpu_offload = as_bool(member("activation_cpu_offload"));
  all.microbatch_auto = as_bool(member("microbatch_auto"));
  all.max_ranks = as_integer(member("max_ranks"), 1, kMany);
  if (const Value* cuda = json.find("cuda")) {
    if (const Value* none = cuda->find("none")) all.no_cuda = as_text(*none);
    if (const Value* ranks = cuda->find("max_ranks"))
      all.max_gpu_ranks = as_integer(*ranks, 1, kMany);
    if (const Value* code = cuda->find("architectures")) all.architectures = as_texts(*code);
  }
  if (const Value* gpu = json.find("gpu")) {
    all.has_no_gpu_code = gpu->is_null();
    if (!gpu->is_null()) {
      const auto of_gpus = [&](std::string_view key) -> const Value& {
        const Value* found = gpu->find(key);
        if (found == nullptr) bad_value(*gpu, fmt::format("lacks '{}'", key));
        return *found;
      };
      all.on_gpus = {.precisions = as_texts(of_gpus("precisions")),
                     .sharding = as_texts(of_gpus("sharding")),
                     .max_ranks = as_integer(of_gpus("max_ranks"), 1, kMany)};
    }
  }
  if (const Value* memory = json.find("memory_bytes"))
    all.memory_bytes = as_integer(*memory, 0, std::int64_t{1} << 60);
  return all;
}

std::optional<Capabilities> ask_capabilities(const std::filesystem::path& trainer) {
  const CommandResult result = run_command({trainer.string(), "--capabilities"});
  if (result.exit_code != 0) return std::nullopt;
  try {
    return parse_capabilities(parse_json(result.out, trainer.string()));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<Lack> lacks_anywhere(const Capabilities& trainer, const sweep::Point& point,
                                   int compute_capability) {
  const bool is_gpu = point.gpu != "cpu";
  if (is_gpu && trainer.has_no_gpu_code) return of_gpu(point, "the trainer was built without CUDA");
  if (!is_gpu && point.precision == Precision::tf32)
    return of_setting("precision", "tf32", "a CPU's f32 products are not rounded to TF32");
  // One that is too old to say has told of the devices that it saw: of GPUs only if there were any.
  const bool knows_gpus = trainer.on_gpus || has(trainer.devices, kCuda);
  const bool knows_device = !is_gpu || knows_gpus;
  const bool said_apart = is_gpu && trainer.on_gpus;
  if (is_gpu && knows_gpus) {
    const std::int64_t most = said_apart ? trainer.on_gpus->max_ranks : trainer.max_gpu_ranks;
    if (point.gpus > most)
      return of_setting("gpus", point.gpus, fmt::format("the trainer runs on at most {}", most));
  }
  if (point.microbatch_size != sweep::kAutoMicrobatch) {
    const std::int64_t count =
        memory::microbatch_count(point.global_batch / point.gpus, point.microbatch_size);
    if (count > memory::kMostMicrobatches) {
      return of_setting("microbatch_size", point.microbatch_size,
                        fmt::format("{} microbatches a step, the trainer has at most {}", count,
                                    memory::kMostMicrobatches));
    }
  }
  const model::Shape& shape = point.model;
  const auto named = [](auto value) { return std::string(to_text(value)); };
  const struct {
    const char* field;
    std::string value;
    const std::vector<std::string>& names;
  } choices[] = {
      {"precision", named(point.precision),
       said_apart ? trainer.on_gpus->precisions : trainer.precisions},
      {"mixed_precision", named(point.mixed_precision), trainer.mixed_precision},
      {"sharding_strategy", named(point.sharding_strategy),
       said_apart ? trainer.on_gpus->sharding : trainer.sharding},
      {"activation_checkpointing", named(point.activation_checkpointing),
       trainer.activation_checkpointing},
      {"norm", named(shape.norm), trainer.norms},
      {"positions", named(shape.positions), trainer.positions},
      {"activation", named(shape.activation), trainer.activations},
  };
  for (const auto& [field, value, names] : choices) {
    const bool of_device = &names == &trainer.precisions;
    if ((knows_device || !of_device) && !has(names, value)) return one_of(field, value, names);
  }
  if (point.gpus == 1 && point.mixed_precision == MixedPrecision::pure)
    return of_setting("mixed_precision", "PURE", "one rank sends no gradients");
  constexpr std::string_view kFile = "file";
  const bool known_data = sweep::names_file(point.data)
                              ? has(trainer.data, kFile)
                              : point.data != kFile && has(trainer.data, point.data);
  if (!known_data) return one_of("data", point.data, trainer.data);
  if (!shape.tied && !trainer.untied_head)
    return Lack{.what = "the model's head is its own", .why = "the trainer has tied"};
  if (point.activation_cpu_offload && !trainer.activation_cpu_offload)
    return of_setting("activation_cpu_offload", true, "the trainer has false");
  const bool may_lack_code = is_gpu && compute_capability > 0 && !trainer.architectures.empty();
  if (may_lack_code && !has_code_for(trainer.architectures, compute_capability)) {
    return of_gpu(point, fmt::format("its compute capability is {}, the trainer has code for {}",
                                     compute_capability_text(compute_capability),
                                     architectures_text(trainer.architectures)));
  }
  return std::nullopt;
}

std::optional<Lack> lacks(const Capabilities& trainer, const sweep::Point& point,
                          int compute_capability) {
  if (auto lack = lacks_anywhere(trainer, point, compute_capability)) return lack;
  const bool is_gpu = point.gpu != "cpu";
  if (!has(trainer.devices, is_gpu ? kCuda : kCpu)) {
    return of_gpu(point, fmt::format("the trainer has no device for it{}{}",
                                     trainer.no_cuda.empty() ? "" : ": ", trainer.no_cuda));
  }
  if (!is_gpu && point.gpus > trainer.max_ranks)
    return of_setting("gpus", point.gpus,
                      fmt::format("the trainer runs on at most {}", trainer.max_ranks));
  return std::nullopt;
}

}  // namespace tessera::submit
