// SPDX-License-Identifier: Apache-2.0
// What a trainer can do, as it says itself, so that a point that it lacks something for is dropped
// with that reason before anything starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/tree.h"
#include "lib/point/point.h"

namespace tessera::submit {

// What the trainer computes on GPUs, whether its machine has one or not.
struct OnGpus {
  std::vector<std::string> precisions, sharding;
  std::int64_t max_ranks = 1;
};

// `trainer --capabilities` (docs/formats.md, "Capabilities"): names as in points.
struct Capabilities {
  std::string cpu;                   // model of the CPU
  std::string blas;                  // library of its matrix products, with version
  int cpus = 0;                      // logical CPUs that a process may use there
  std::vector<std::string> devices;  // "cpu", "cuda"
  std::string no_cuda;               // why "cuda" is not among them, as it says; may be empty
  std::vector<std::string> precisions, mixed_precision, sharding, activation_checkpointing;
  std::vector<std::string> norms, positions, activations;
  std::vector<std::string> data;  // names of data sets, and "file" for the path of a token file
  bool untied_head = false;
  bool activation_cpu_offload = false;
  bool microbatch_auto = false;
  std::int64_t max_ranks = 1;  // of CPUs
  std::int64_t max_gpu_ranks = 1;
  std::optional<OnGpus> on_gpus;           // nothing: built without CUDA, or too old to say
  bool has_no_gpu_code = false;            // built without CUDA, as it says
  std::vector<std::string> architectures;  // of GPUs that it has code for; empty: not said
  std::int64_t memory_bytes = 0;           // of that machine; 0: not said
};

// Error(input) where it is not what a trainer prints.
Capabilities parse_capabilities(const Value& json);

// Nothing if there is no such trainer or it does not answer: then its runs will say why.
std::optional<Capabilities> ask_capabilities(const std::filesystem::path& trainer);

// What a trainer lacks for a point.
struct Lack {
  enum class Of : std::uint8_t {
    gpu,     // the point's GPU: another point may lack the same for another GPU
    setting  // any other setting, or the model
  };
  Of of = Of::setting;
  std::string what;  // "precision amp_fp8", "gpu h200"
  std::string why;   // "the trainer has fp32, amp_bf16"
  // "precision amp_fp8: the trainer has fp32, amp_bf16"
  std::string text() const { return what + ": " + why; }
};

// Why the trainer cannot run the point, or nothing. What no machine would change comes before what
// this one lacks. An automatic microbatch is not looked at. `compute_capability` of the point's
// GPU: 90 is 9.0, 0 not known.
std::optional<Lack> lacks(const Capabilities& trainer, const sweep::Point& point,
                          int compute_capability = 0);

// Why this trainer can run the point on no machine, as far as it says: neither its machine's
// devices nor how many ranks of CPUs it has libraries for there counts.
std::optional<Lack> lacks_anywhere(const Capabilities& trainer, const sweep::Point& point,
                                   int compute_capability = 0);

}  // namespace tessera::submit
