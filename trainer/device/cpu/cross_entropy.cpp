// SPDX-License-Identifier: Apache-2.0
// The loss. Rounded once: dlogits (the target's too, from its own difference), row_loss,
// state->loss.
#include <fmt/format.h>

#include "lib/base/error.h"
#include "trainer/device/cpu/operations.h"
#include "trainer/device/cpu/typed.h"

namespace tessera::trainer::cpu {

void run(const CrossEntropy& op, const Context& context) {
  const auto* targets = elements<const std::int32_t>(op.targets);
  for (std::int64_t r = 0; r < op.logits.rows; ++r) {
    if (targets[r] >= op.vocab) {
      throw Error(
          ExitCode::internal, "cross_entropy",
          fmt::format("target {} at row {} is outside of {} classes", targets[r], r, op.vocab));
    }
  }
  with_storage(op.logits.dtype, [&]<class S>() {
    using C = Compute<S>;
    const auto& kernels = storage<S>(context.kernels);
    const auto factor = static_cast<C>(op.in->inv_tokens);
    C* losses = elements<C>(op.row_loss);
#pragma omp parallel for schedule(static)
    for (std::int64_t r = 0; r < op.logits.rows; ++r) {
      S* logits = row<S>(op.logits, r);
      if (targets[r] < 0) {
        std::fill_n(logits, op.logits.cols, S{});
        losses[r] = 0;
      } else {
        losses[r] = kernels.cross_entropy(logits, op.vocab, op.logits.cols, targets[r], factor);
      }
    }
  });
}

void run(const SumLoss& op, const Context&) {
  double sum = 0;
  for (std::int64_t r = 0; r < op.row_loss.cols; ++r) {
    sum += op.row_loss.dtype == DType::f64
               ? elements<const double>(op.row_loss)[r]
               : static_cast<double>(elements<const float>(op.row_loss)[r]);
  }
  const double before = op.accumulate ? static_cast<double>(op.state->loss) : 0.0;
  op.state->loss = static_cast<float>(before + sum * static_cast<double>(op.in->inv_tokens));
}

}  // namespace tessera::trainer::cpu
