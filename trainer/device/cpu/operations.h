// SPDX-License-Identifier: Apache-2.0
// The operations on the CPU, each threaded by OpenMP. device/check.h has checked them before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/device/cpu/kernels.h"
#include "trainer/device/ops.h"

namespace tessera::trainer::cpu {

struct Context {
  const Kernels& kernels;
  int threads;
  std::span<std::byte> workspace;  // at least workspace_bytes(op), 256-byte aligned
};

// Scratch bytes of the operation with this many threads.
std::int64_t workspace_bytes(const Op& op, int threads);

// The kernel tables that this CPU can run, the best first.
std::span<const Kernels* const> supported_kernels();

void run(const Gemm& op, const Context& context);
void run(const BiasGrad& op, const Context& context);
void run(const Rope& op, const Context& context);
void run(const AttentionForward& op, const Context& context);
void run(const AttentionBackward& op, const Context& context);
void run(const NormForward& op, const Context& context);
void run(const NormBackward& op, const Context& context);
void run(const ActForward& op, const Context& context);
void run(const ActBackward& op, const Context& context);
void run(const Embed& op, const Context& context);
void run(const EmbedBackward& op, const Context& context);
void run(const CrossEntropy& op, const Context& context);
void run(const SumLoss& op, const Context& context);
void run(const Cast& op, const Context& context);
void run(const SquaredNorm& op, const Context& context);
void run(const FinishNorm& op, const Context& context);
void run(const AdamW& op, const Context& context);
void run(const Init& op, const Context& context);

std::int64_t gemm_workspace_bytes(const Gemm& op);
std::int64_t rope_workspace_bytes(const Rope& op, int threads);
std::int64_t attention_workspace_bytes(const AttentionForward& op, int threads);
std::int64_t attention_workspace_bytes(const AttentionBackward& op, int threads);

}  // namespace tessera::trainer::cpu
