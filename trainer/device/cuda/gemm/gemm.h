// SPDX-License-Identifier: Apache-2.0
// GEMMs on the GPU by cuBLASLt. Each shape of a run gets an algorithm before the first step, so
// that a step only launches.
//
// The algorithm is the first of the library's heuristics, or a faster one by autotuning
// (gemm_choice.h), or what an earlier run chose on such a GPU (gemm_cache.h). A candidate must fit
// the workspace, and its split-k parts must be summed in f32 and in a fixed order
// (gemm_reductions), so that equal algorithms give equal bits. `deterministic` always takes the
// first: then no clock and no file has a say.
//
// One thread. All launches go to one stream at a time, because they share the workspace. Errors
// name the shape and cuBLASLt's status: unsupported, oom or failed.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/device/cuda/gemm/gemm_cache.h"
#include "trainer/device/cuda/gemm/gemm_choice.h"
#include "trainer/device/cuda/gemm/gemm_descriptors.h"
#include "trainer/device/cuda/gemm/gemm_operands.h"
#include "trainer/device/cuda/gemm/gemm_shape.h"
#include "trainer/device/cuda/gemm/gemm_trials.h"
#include "trainer/device/cuda/libraries/libraries.h"

namespace tessera::trainer::cuda {

struct GemmOptions {
  bool deterministic = false;
  double seconds = kGemmBudgetSeconds;  // to time a shape's candidates; 0: none is timed
  std::filesystem::path cache;          // empty: choices are neither read nor kept
  GpuNames gpu;                         // the key of cached choices
};

enum class GemmSource : std::uint8_t { first, timed, cached, next };

// The choice for a shape, for the log. next: it replaces one that was refused at its launch. tile
// and stages are cuBLASLt's numbers (cublasLtMatmulTile_t, cublasLtMatmulStages_t).
struct GemmChoice {
  GemmShape shape;
  GemmSource source = GemmSource::first;
  int algorithm = 0, tile = 0, stages = 0, split_k = 1;
  std::size_t index = 0;       // among the candidates; cached: unknown
  std::size_t candidates = 0;  // cached: 0
  double us = 0;               // median time of a launch if timed; else 0
  double first_us = 0;         // the first heuristic's median then; cached: 0
};

// Returns "m4096 n12288 k4096 nt bf16>bf16 a256: timed, algorithm 66 tile 20 stages 36 split 1,
// 812.4 us, number 3 of 8 (the first: 840.1 us)".
std::string to_text(const GemmChoice& choice);

class GemmPlans {
 public:
  // tf32: f32 GEMMs use TF32. Error(wrong_device) if cuBLASLt does not start. The table of
  // functions must outlive the plans.
  GemmPlans(const CublasLt& lt, bool tf32);

  // Chooses an algorithm for each shape that has no plan yet. workspace: device memory for all
  // launches, aligned to 256 bytes, the same in every call. trials: times candidates on `stream`;
  // null: none is timed. They write only to memory that they acquire and to the workspace.
  void prepare(std::span<const GemmShape> shapes, std::span<std::byte> workspace,
               const GemmOptions& options, GemmTrials* trials, cudaStream_t stream);

  // Launches a GEMM. Error(internal) if the shape was not prepared or an operand lies in the
  // workspace.
  void run(const GemmShape& shape, const GemmOperands& operands, cudaStream_t stream);
  void run(const Gemm& op, cudaStream_t stream);
  // Runs a GEMM before the first step: if cuBLASLt refuses to launch what its heuristics offered,
  // the next candidate that launches replaces it.
  void launch_first(const GemmShape& shape, const GemmOperands& operands, cudaStream_t stream);
  void launch_first(const Gemm& op, cudaStream_t stream);

  // The choices, in the order of preparation.
  const std::vector<GemmChoice>& choices() const { return choices_; }
  // Lines for people: what went wrong with the cache or with the trials' memory.
  const std::vector<std::string>& notes() const { return notes_; }
  // Hash of all algorithms in use (gemm_table_hash).
  std::string hash() const;

 private:
  struct Plan {
    GemmDescriptors descriptors;
    cublasLtMatmulAlgo_t algorithm{};
    std::size_t choice = 0;  // in choices_
  };
  using Plans = std::unordered_map<GemmShape, Plan, GemmShapeHash>;
  using Candidates = std::vector<cublasLtMatmulAlgo_t>;
  struct Untimed {
    GemmShape shape;
    Candidates candidates;
  };

  Candidates candidates(const GemmShape& shape, const Plan& plan) const;
  bool is_usable(const GemmShape& shape, const Plan& plan,
                 const cublasLtMatmulAlgo_t& algorithm) const;
  bool adopt(const GemmShape& shape, Plan& plan, GemmCache& cache);
  Plan& plan_of(const GemmShape& shape);
  void choose_first(const GemmShape& shape, Plan& plan, const Candidates& candidates);
  std::map<std::string, GemmCacheEntry> time(const std::vector<Untimed>& shapes, double seconds,
                                             GemmTrials& trials, cudaStream_t stream);
  GemmCacheEntry time(const Untimed& of, std::span<const GemmOperands> sets, double seconds,
                      GemmTrials& trials, cudaStream_t stream);
  void describe_choice(Plan& plan, const cublasLtMatmulAlgo_t& algorithm, GemmSource source);
  cublasStatus_t launch(const GemmShape& shape, const Plan& plan,
                        const cublasLtMatmulAlgo_t& algorithm, const GemmOperands& operands,
                        cudaStream_t stream) const;

  const CublasLt& lt_;
  bool tf32_;
  LtOwned<cublasLtContext> handle_;
  std::span<std::byte> workspace_;
  GemmMachine machine_;
  Plans plans_;
  std::vector<GemmChoice> choices_;
  std::vector<std::string> notes_;
};

}  // namespace tessera::trainer::cuda
