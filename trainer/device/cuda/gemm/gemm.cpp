// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include "lib/base/error.h"

namespace tessera::trainer::cuda {

namespace {

constexpr double kMicro = 1e6;
constexpr const char* kSourceNames[] = {"first", "timed", "cached", "next"};

LtOwned<cublasLtContext> start(const CublasLt& lt) {
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = lt.cublasLtCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(status == CUBLAS_STATUS_ALLOC_FAILED ? ExitCode::oom : ExitCode::wrong_device,
                lt.path.string(),
                fmt::format("cuBLASLt does not start: {}", lt.cublasLtGetStatusString(status)));
  }
  return {handle, lt.cublasLtDestroy};
}

// Returns an attribute of the algorithm's configuration, or 0 if it has none.
template <class Number>
Number configured(const CublasLt& lt, const cublasLtMatmulAlgo_t& algorithm,
                  cublasLtMatmulAlgoConfigAttributes_t attribute) {
  Number number = 0;
  std::size_t written = 0;
  const cublasStatus_t status = lt.cublasLtMatmulAlgoConfigGetAttribute(
      &algorithm, attribute, &number, sizeof(number), &written);
  return status == CUBLAS_STATUS_SUCCESS && written == sizeof(number) ? number : 0;
}

// Returns whether split-k parts are summed as gemm_reductions allows. An algorithm without split-k
// reduces nothing, whatever its scheme says.
bool reduces_as_promised(const CublasLt& lt, const GemmShape& shape,
                         const cublasLtMatmulAlgo_t& algorithm) {
  const auto scheme =
      configured<std::uint32_t>(lt, algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  return (scheme & ~gemm_reductions(shape)) == 0 ||
         configured<std::int32_t>(lt, algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) == 1;
}

bool is_same(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
  return std::memcmp(a.data, b.data, sizeof(a.data)) == 0;
}

// Acquires the trials' memory and releases it, whatever happens.
class TrialMemory {
 public:
  TrialMemory(GemmTrials& trials, std::int64_t bytes)
      : trials_(trials), bytes_(trials.acquire(bytes)) {}
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  ~TrialMemory() { trials_.release(); }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  GemmTrials& trials_;
  std::span<std::byte> bytes_;
};

GemmOperands operands_of(const Gemm& op) {
  return {.a = op.a.data, .b = op.b.data, .d = op.d.data, .bias = op.bias.data, .pre = op.pre.data};
}

// Checks that no operand lies in the workspace: an algorithm might overwrite what it reads.
void require_disjoint(const GemmShape& shape, const GemmOperands& operands,
                      std::span<const std::byte> workspace) {
  const std::less<const void*> before;
  for (const void* operand :
       {static_cast<const void*>(operands.a), static_cast<const void*>(operands.b),
        static_cast<const void*>(operands.d)}) {
    if (!before(operand, workspace.data()) && before(operand, workspace.data() + workspace.size()))
      throw Error(ExitCode::internal, "gemm " + to_text(shape), "an operand lies in the workspace");
  }
}

// Returns whether the status refuses this algorithm for these operands, and says nothing of the
// GPU.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

std::string mib(std::int64_t bytes) {
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

std::string to_text(const GemmChoice& c) {
  std::string text = fmt::format("{}: {}, algorithm {} tile {} stages {} split {}",
                                 to_text(c.shape), kSourceNames[static_cast<int>(c.source)],
                                 c.algorithm, c.tile, c.stages, c.split_k);
  if (c.us > 0) text += fmt::format(", {:.1f} us", c.us);
  if (c.candidates > 0) text += fmt::format(", number {} of {}", c.index + 1, c.candidates);
  if (c.first_us > 0 && c.index > 0) text += fmt::format(" (the first: {:.1f} us)", c.first_us);
  return text;
}

GemmPlans::GemmPlans(const CublasLt& lt, bool tf32) : lt_(lt), tf32_(tf32), handle_(start(lt)) {}

// For each new shape: the cache's algorithm if it still runs, otherwise the heuristics' first one.
// Shapes with several candidates are then timed together, and the results are merged with the
// cache.
void GemmPlans::prepare(std::span<const GemmShape> shapes, std::span<std::byte> workspace,
                        const GemmOptions& options, GemmTrials* trials, cudaStream_t stream) {
  if (!plans_.empty() &&
      (workspace.data() != workspace_.data() || workspace.size() != workspace_.size()))
    throw Error(ExitCode::internal, "gemm", "prepared for another workspace");
  workspace_ = workspace;
  const auto workspace_bytes = static_cast<std::int64_t>(workspace.size());
  machine_ = {.gpu = options.gpu.gpu,
              .cublaslt = lt_.version,
              .driver = options.gpu.driver,
              .workspace_bytes = workspace_bytes};
  GemmCache cache(options.deterministic ? std::filesystem::path() : options.cache, machine_);
  std::vector<Untimed> untimed;
  for (const GemmShape& shape : shapes) {
    if (plans_.contains(shape)) continue;
    const auto added = plans_.try_emplace(shape, describe(lt_, shape, workspace_bytes)).first;
    Plan& plan = added->second;
    plan.choice = choices_.size();
    choices_.push_back({.shape = shape});
    if (adopt(shape, plan, cache)) continue;
    try {
      Candidates found = candidates(shape, plan);
      choose_first(shape, plan, found);
      if (!options.deterministic && found.size() > 1) untimed.push_back({shape, std::move(found)});
    } catch (...) {
      // A plan without an algorithm must not stay.
      choices_.pop_back();
      plans_.erase(added);
      throw;
    }
  }
  std::map<std::string, GemmCacheEntry> timed;
  if (trials != nullptr && options.seconds > 0 && !untimed.empty())
    timed = time(untimed, options.seconds, *trials, stream);
  cache.add(timed);
  // Another process may have chosen an algorithm for the same shape meanwhile: its choice wins.
  for (const Untimed& each : untimed) adopt(each.shape, plans_.at(each.shape), cache);
  notes_.insert(notes_.end(), cache.notes().begin(), cache.notes().end());
}

GemmPlans::Candidates GemmPlans::candidates(const GemmShape& shape, const Plan& plan) const {
  std::array<cublasLtMatmulHeuristicResult_t, kGemmCandidates> results{};
  int count = 0;
  const GemmDescriptors& of = plan.descriptors;
  require(lt_,
          lt_.cublasLtMatmulAlgoGetHeuristic(
              handle_.get(), of.operation.get(), of.b.get(), of.a.get(), of.d.get(), of.d.get(),
              of.preference.get(), static_cast<int>(results.size()), results.data(), &count),
          shape, "cublasLtMatmulAlgoGetHeuristic");
  Candidates found;
  for (const auto& result : std::span(results).first(static_cast<std::size_t>(count))) {
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_.size() &&
        reduces_as_promised(lt_, shape, result.algo))
      found.push_back(result.algo);
  }
  if (found.empty()) {
    throw Error(ExitCode::unsupported, "gemm " + to_text(shape),
                fmt::format("cuBLASLt {} has no algorithm for it with a workspace of {}",
                            lt_.version, mib(static_cast<std::int64_t>(workspace_.size()))));
  }
  return found;
}

bool GemmPlans::is_usable(const GemmShape& shape, const Plan& plan,
                          const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  const GemmDescriptors& of = plan.descriptors;
  return lt_.cublasLtMatmulAlgoCheck(handle_.get(), of.operation.get(), of.b.get(), of.a.get(),
                                     of.d.get(), of.d.get(), &algorithm,
                                     &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_.size() && reduces_as_promised(lt_, shape, algorithm);
}

// Takes the cached choice if it is usable. Returns whether the plan now has the cache's algorithm.
bool GemmPlans::adopt(const GemmShape& shape, Plan& plan, GemmCache& cache) {
  const std::string key = to_text(shape);
  const GemmCacheEntry* entry = cache.find(key);
  GemmChoice& choice = choices_[plan.choice];
  if (entry == nullptr) return false;
  if (choice.source == GemmSource::timed && is_same(plan.algorithm, entry->algorithm)) return true;
  if (!is_usable(shape, plan, entry->algorithm)) {
    notes_.push_back(
        fmt::format("gemm {}: the algorithm of an earlier run does not run here", key));
    cache.reject(key);
    return false;
  }
  choice = {.shape = shape, .us = entry->us};
  describe_choice(plan, entry->algorithm, GemmSource::cached);
  return true;
}

void GemmPlans::choose_first(const GemmShape& shape, Plan& plan, const Candidates& candidates) {
  choices_[plan.choice] = {.shape = shape, .candidates = candidates.size()};
  describe_choice(plan, candidates.front(), GemmSource::first);
}

void GemmPlans::describe_choice(Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                                GemmSource source) {
  plan.algorithm = algorithm;
  GemmChoice& choice = choices_[plan.choice];
  choice.source = source;
  choice.algorithm = configured<std::int32_t>(lt_, algorithm, CUBLASLT_ALGO_CONFIG_ID);
  choice.tile =
      static_cast<int>(configured<std::uint32_t>(lt_, algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID));
  choice.stages =
      static_cast<int>(configured<std::uint32_t>(lt_, algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID));
  choice.split_k = configured<std::int32_t>(lt_, algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
}

// Times the shapes one after another in the same memory, which is as large as the largest of them
// needs.
std::map<std::string, GemmCacheEntry> GemmPlans::time(const std::vector<Untimed>& shapes,
                                                      double seconds, GemmTrials& trials,
                                                      cudaStream_t stream) {
  std::int64_t wanted = 0;
  for (const Untimed& each : shapes)
    wanted = std::max(wanted, gemm_trial_bytes(each.shape, trials.l2_bytes()));
  const TrialMemory memory(trials, wanted);
  const auto had = static_cast<std::int64_t>(memory.bytes().size());
  std::map<std::string, GemmCacheEntry> timed;
  std::int64_t too_large = 0;
  std::int64_t missing = 0;
  for (const Untimed& each : shapes) {
    const std::vector<GemmOperands> sets =
        gemm_operand_sets(each.shape, memory.bytes(), trials.l2_bytes());
    if (sets.empty()) {
      ++too_large;
      missing = std::max(missing, gemm_set_bytes(each.shape));
      continue;
    }
    const std::int64_t used = std::min(had, gemm_trial_bytes(each.shape, trials.l2_bytes()));
    trials.fill_with_random(memory.bytes().first(static_cast<std::size_t>(used)), each.shape.in);
    timed[to_text(each.shape)] = time(each, sets, seconds, trials, stream);
  }
  if (too_large > 0) {
    notes_.push_back(fmt::format(
        "gemm: {} of {} shapes have the first algorithm untimed: trials need up to {} of GPU "
        "memory, {} can be had",
        too_large, shapes.size(), mib(missing), mib(had)));
  }
  return timed;
}

// Launches go round the operand sets, so that no launch finds its operands in the L2 cache.
GemmCacheEntry GemmPlans::time(const Untimed& of, std::span<const GemmOperands> sets,
                               double seconds, GemmTrials& trials, cudaStream_t stream) {
  Plan& plan = plans_.at(of.shape);
  std::size_t next = 0;
  cublasStatus_t fault = CUBLAS_STATUS_SUCCESS;
  const auto stopwatch = [&](std::size_t candidate,
                             std::int64_t launches) -> std::optional<double> {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const double taken = trials.seconds([&] {
      for (std::int64_t i = 0; i < launches && status == CUBLAS_STATUS_SUCCESS; ++i)
        status =
            launch(of.shape, plan, of.candidates[candidate], sets[next++ % sets.size()], stream);
    });
    if (status == CUBLAS_STATUS_SUCCESS) return taken;
    fault = status;
    return std::nullopt;
  };
  const auto decision = choose(time_candidates(of.candidates.size(), seconds, stopwatch));
  if (!decision) {
    require(lt_, fault, of.shape, "cublasLtMatmul");
    throw Error(ExitCode::failed, "gemm " + to_text(of.shape), "no launch took any time");
  }
  GemmChoice& choice = choices_[plan.choice];
  choice.index = decision->index;
  choice.us = decision->seconds * kMicro;
  choice.first_us = decision->first_seconds * kMicro;
  describe_choice(plan, of.candidates[decision->index], GemmSource::timed);
  return {.algorithm = plan.algorithm, .us = choice.us, .is_first = decision->index == 0};
}

cublasStatus_t GemmPlans::launch(const GemmShape& shape, const Plan& plan,
                                 const cublasLtMatmulAlgo_t& algorithm,
                                 const GemmOperands& operands, cudaStream_t stream) const {
  static constexpr float kOne = 1;
  static constexpr float kZero = 0;
  const GemmDescriptors& of = plan.descriptors;
  if (shape.bias) set_bias(lt_, of, operands.bias);
  if (shape.epilogue != GemmEpilogue::none) set_pre(lt_, of, operands.pre);
  return lt_.cublasLtMatmul(handle_.get(), of.operation.get(), &kOne, operands.b, of.b.get(),
                            operands.a, of.a.get(), shape.accumulate ? &kOne : &kZero, operands.d,
                            of.d.get(), operands.d, of.d.get(), &algorithm, workspace_.data(),
                            workspace_.size(), stream);
}

GemmPlans::Plan& GemmPlans::plan_of(const GemmShape& shape) {
  const auto found = plans_.find(shape);
  if (found == plans_.end())
    throw Error(ExitCode::internal, "gemm " + to_text(shape), "was not prepared");
  return found->second;
}

void GemmPlans::run(const GemmShape& shape, const GemmOperands& operands, cudaStream_t stream) {
  const Plan& plan = plan_of(shape);
  require_disjoint(shape, operands, workspace_);
  require(lt_, launch(shape, plan, plan.algorithm, operands, stream), shape, "cublasLtMatmul");
}

void GemmPlans::run(const Gemm& op, cudaStream_t stream) {
  run(shape_of(op, tf32_), operands_of(op), stream);
}

void GemmPlans::launch_first(const Gemm& op, cudaStream_t stream) {
  launch_first(shape_of(op, tf32_), operands_of(op), stream);
}

void GemmPlans::launch_first(const GemmShape& shape, const GemmOperands& operands,
                             cudaStream_t stream) {
  require_disjoint(shape, operands, workspace_);
  Plan& plan = plan_of(shape);
  const cublasStatus_t status = launch(shape, plan, plan.algorithm, operands, stream);
  if (!is_refusal(status)) return require(lt_, status, shape, "cublasLtMatmul");
  const Candidates others = candidates(shape, plan);
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (is_same(others[i], plan.algorithm)) continue;
    if (launch(shape, plan, others[i], operands, stream) != CUBLAS_STATUS_SUCCESS) continue;
    notes_.push_back(fmt::format("gemm {}: cuBLASLt does not launch the algorithm chosen ({})",
                                 to_text(shape), lt_.cublasLtGetStatusString(status)));
    choices_[plan.choice] = {.shape = shape, .index = i, .candidates = others.size()};
    return describe_choice(plan, others[i], GemmSource::next);
  }
  require(lt_, status, shape, "cublasLtMatmul");
}

std::string GemmPlans::hash() const {
  std::map<std::string, cublasLtMatmulAlgo_t> in_use;
  for (const auto& [shape, plan] : plans_) in_use.emplace(to_text(shape), plan.algorithm);
  return gemm_table_hash(machine_, in_use);
}

}  // namespace tessera::trainer::cuda
