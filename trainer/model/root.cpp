// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/root.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/model/block.h"

namespace tessera::trainer {

namespace {

// Returns one of the microbatch's i32 arrays, [1, count].
Tensor batch_part(const Pass& pass, std::int64_t offset, std::int64_t count) {
  return {.data = pass.memory.data("batch") + offset * bytes_of(DType::i32),
          .dtype = DType::i32,
          .rows = 1,
          .cols = count,
          .ld = count};
}

Tensor columns_of(const Tensor& vector, std::int64_t begin, std::int64_t count) {
  Tensor part = vector;
  part.data = static_cast<std::byte*>(vector.data) + begin * bytes_of(vector.dtype);
  part.cols = count;
  part.ld = count;
  return part;
}

}  // namespace

void embed_forward(const Pass& pass) {
  const memory::BatchLayout layout = memory::batch_layout(pass.memory.config(), pass.sequences);
  pass.emit(Embed{.tokens = batch_part(pass, layout.tokens, pass.rows()),
                  .table = pass.residual_parameter("token_table"),
                  .positions = pass.residual_parameter("positions"),
                  .y = pass.residual(block_input(pass.memory, 0)),
                  .seq = pass.seq_len()});
}

void head(const Pass& pass) {
  const model::Shape& shape = pass.shape();
  const memory::BatchLayout layout = memory::batch_layout(pass.memory.config(), pass.sequences);
  const auto* inputs = reinterpret_cast<const StepInputs*>(pass.memory.data("inputs"));
  auto* state = reinterpret_cast<StepState*>(pass.memory.data("state"));

  const Tensor sum = pass.residual("x.final");
  const Tensor final = pass.activation("final", pass.width());
  pass.emit(NormForward{.kind = shape.norm,
                        .eps = static_cast<float>(shape.norm_eps),
                        .x = pass.residual(mid_name(pass.memory, shape.n_layers - 1)),
                        .add = pass.activation("branch", pass.width()),
                        .sum = sum,
                        .y = final,
                        .gain = pass.residual_parameter("norm.gain"),
                        .bias = pass.residual_parameter("norm.bias"),
                        .mean = pass.statistic("mean"),
                        .rstd = pass.statistic("rstd")});

  // Shape: [padded vocab, d_model].
  const std::int64_t unit = shape.tied ? 0 : shape.n_layers + 1;
  const char* name = shape.tied ? "token_table" : "head.weight";
  const Tensor weight = pass.memory.parameter(unit, name);
  const Tensor dweight = pass.memory.gradient(unit, name);
  const Tensor dfinal = pass.activation("dnorm", pass.width());
  const Tensor targets = batch_part(pass, layout.targets, pass.rows());
  const Tensor row_loss = pass.statistic("row_loss");
  const std::int64_t chunk = memory::head_chunk_rows(pass.memory.config());
  for (std::int64_t begin = 0; begin < pass.rows(); begin += chunk) {
    const std::int64_t count = std::min(chunk, pass.rows() - begin);
    const Tensor logits = pass.memory.tensor("logits", count, weight.rows, pass.memory.compute());
    const Tensor x = rows_of(final, begin, count);
    pass.emit(Gemm{.a = x, .b = weight, .d = logits});
    pass.emit(CrossEntropy{.logits = logits,
                           .targets = columns_of(targets, begin, count),
                           .row_loss = columns_of(row_loss, begin, count),
                           .vocab = shape.vocab,
                           .in = inputs});
    pass.emit(
        Gemm{.a = logits, .b = weight, .d = rows_of(dfinal, begin, count), .transpose_b = false});
    if (!dweight) continue;
    pass.emit(Gemm{.a = logits,
                   .b = x,
                   .d = dweight,
                   .transpose_a = true,
                   .transpose_b = false,
                   .accumulate = pass.accumulate || begin > 0});
  }
  pass.emit(
      SumLoss{.row_loss = row_loss, .in = inputs, .state = state, .accumulate = pass.accumulate});
  pass.emit(NormBackward{.kind = shape.norm,
                         .dy = dfinal,
                         .sum = sum,
                         .gain = pass.residual_parameter("norm.gain"),
                         .mean = pass.statistic("mean"),
                         .rstd = pass.statistic("rstd"),
                         .dsum = pass.residual("dx"),
                         .dgain = pass.norm_gradient("norm.gain", true),
                         .dbias = pass.norm_gradient("norm.bias", false),
                         .partials = pass.partials(norm_partials(sum.rows, sum.cols)),
                         .accumulate = pass.accumulate});
}

void embed_backward(const Pass& pass) {
  const memory::BatchLayout layout = memory::batch_layout(pass.memory.config(), pass.sequences);
  const Tensor dtable = pass.gradient("token_table");
  const Tensor dpositions = pass.gradient("positions");
  if (!dtable && !dpositions) return;
  pass.emit(EmbedBackward{
      .order = batch_part(pass, layout.order, pass.rows()),
      .starts = batch_part(pass, layout.starts, model::padded_vocab(pass.shape().vocab) + 1),
      .dy = pass.residual("dx"),
      .dtable = dtable,
      .dpositions = dpositions,
      .seq = pass.seq_len(),
      .accumulate_table = pass.shape().tied || pass.accumulate,  // a tied one has the head's
      .accumulate_positions = pass.accumulate});
}

}  // namespace tessera::trainer
