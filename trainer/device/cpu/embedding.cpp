// SPDX-License-Identifier: Apache-2.0
// Embedding. Rounded once: y. Gradients are summed in f32 (f64) in the batch's order, each row of
// the table by one thread.
#include <fmt/format.h>

#include "lib/base/error.h"
#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"

namespace tessera::trainer::cpu {

void run(const Embed& op, const Context& context) {
  const auto* tokens = elements<const std::int32_t>(op.tokens);
  // Tokens are checked here because nothing can be thrown inside the threads' loop.
  for (std::int64_t t = 0; t < op.y.rows; ++t) {
    if (tokens[t] < 0 || tokens[t] >= op.table.rows) {
      throw Error(ExitCode::internal, "embed",
                  fmt::format("token {} at row {} is outside of the table of {} rows", tokens[t], t,
                              op.table.rows));
    }
  }
  with_storage(op.y.dtype, [&]<class S>() {
    const auto& kernels = storage<S>(context.kernels);
#pragma omp parallel for schedule(static)
    for (std::int64_t t = 0; t < op.y.rows; ++t) {
      const S* from = row<S>(op.table, tokens[t]);
      if (op.positions) {
        kernels.add(from, row<S>(op.positions, t % op.seq), row<S>(op.y, t), op.y.cols);
      } else {
        std::copy_n(from, op.y.cols, row<S>(op.y, t));
      }
    }
  });
}

void run(const EmbedBackward& op, const Context& context) {
  const auto* order = elements<const std::int32_t>(op.order);
  const auto* starts = elements<const std::int32_t>(op.starts);
  if (op.dtable && (starts[0] != 0 || starts[op.dtable.rows] != op.dy.rows)) {
    throw Error(ExitCode::internal, "embed_backward",
                fmt::format("starts run from {} to {}, not over the {} rows of dy", starts[0],
                            starts[op.dtable.rows], op.dy.rows));
  }
  with_storage(op.dy.dtype, [&]<class S>() {
    using C = Compute<S>;
    const auto& kernels = storage<S>(context.kernels);
    const std::int64_t n = op.dy.cols;
    // Threads get small chunks in turn, because frequent tokens are neighbours in most
    // vocabularies.
#pragma omp parallel for schedule(static, 16)
    for (std::int64_t v = 0; v < op.dtable.rows; ++v) {
      C* sum = row<C>(op.dtable, v);
      if (!op.accumulate_table) std::fill_n(sum, n, C(0));
      for (std::int32_t i = starts[v]; i < starts[v + 1]; ++i) {
        kernels.add_to(row<S>(op.dy, order[i]), sum, n);
      }
    }
    if (!op.dpositions) return;
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < op.dpositions.rows; ++p) {
      C* sum = row<C>(op.dpositions, p);
      if (!op.accumulate_positions) std::fill_n(sum, n, C(0));
      if (p >= op.seq) continue;  // the table has more positions than this run's sequences
      for (std::int64_t t = p; t < op.dy.rows; t += op.seq) {
        kernels.add_to(row<S>(op.dy, t), sum, n);
      }
    }
  });
}

}  // namespace tessera::trainer::cpu
