// What a trainer can do, as it says itself, so that a point that it lacks something for is dropped
// with that reason before anything starts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/tree.h"
#include "lib/sweep/point.h"

namespace tessera::submit {

// `trainer --capabilities`: names as in points.
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
  std::int64_t memory_bytes = 0;  // of that machine; 0: not said
};

// Error(input) where it is not what a trainer prints.
Capabilities parse_capabilities(const Value& json);

// Nothing if there is no such trainer or it does not answer: then its runs will say why.
std::optional<Capabilities> ask_capabilities(const std::filesystem::path& trainer);

// Why the trainer cannot run the point: "precision amp_fp8: the trainer has fp32, amp_bf16", or
// nothing. An automatic microbatch is not looked at.
std::optional<std::string> lacks(const Capabilities& trainer, const sweep::Point& point);

}  // namespace tessera::submit
