// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lib/base/error.h"
#include "trainer/device/parts.h"

namespace tessera::trainer {
namespace {

// Returns the dtype of sums and statistics: f64 for f64, otherwise f32.
DType compute_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

// What the rules are made of. `name` is the name of a tensor in the operation, for messages.
// supported() throws Error(unsupported), all others throw Error(internal).
class Checker {
 public:
  explicit Checker(const Op& op) : op_(op_name(op)) {}

  void need(bool holds, std::string_view what) const {
    if (!holds) throw Error(ExitCode::internal, op_, what);
  }
  void supported(bool holds, std::string_view what) const {
    if (!holds) throw Error(ExitCode::unsupported, op_, what);
  }

  void floating(std::string_view name, const Tensor& t) const {
    if (t.dtype == DType::i32) fail(name, "is i32, not a floating dtype");
  }

  // Requires a view of that shape and dtype, aligned to its elements.
  void view(std::string_view name, const Tensor& t, std::int64_t rows, std::int64_t cols,
            DType dtype) const {
    if (!t) fail(name, "is missing");
    if (t.dtype != dtype) {
      fail(name, fmt::format("is {}, not {}", to_text(t.dtype), to_text(dtype)));
    }
    if (t.rows != rows || t.cols != cols) {
      fail(name, fmt::format("is [{}, {}], not [{}, {}]", t.rows, t.cols, rows, cols));
    }
    if (t.rows < 1 || t.cols < 1) fail(name, fmt::format("is empty: [{}, {}]", t.rows, t.cols));
    if (t.rows > 1 && t.ld < t.cols) {
      fail(name, fmt::format("has leading dimension {} under its {} columns", t.ld, t.cols));
    }
    if (reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::size_t>(bytes_of(t.dtype)) !=
        0) {
      fail(name, "is not aligned to its elements");
    }
  }
  // Requires a view of one row.
  void flat(std::string_view name, const Tensor& t, std::int64_t cols, DType dtype) const {
    view(name, t, 1, cols, dtype);
  }
  // Requires a floating tensor that is a valid view. Others are then compared with it.
  void itself(std::string_view name, const Tensor& t) const {
    floating(name, t);
    view(name, t, t.rows, t.cols, t.dtype);
  }
  // Requires contiguous memory for at least so many elements.
  void scratch(std::string_view name, const Tensor& t, std::int64_t elements, DType dtype) const {
    if (!t) fail(name, "is missing");
    if (t.dtype != dtype) {
      fail(name, fmt::format("is {}, not {}", to_text(t.dtype), to_text(dtype)));
    }
    if (t.rows * t.cols < elements || (t.rows > 1 && t.ld != t.cols)) {
      fail(name, fmt::format("holds {} contiguous elements, {} are needed",
                             t.ld == t.cols ? t.rows * t.cols : t.cols, elements));
    }
  }

 private:
  [[noreturn]] void fail(std::string_view name, std::string_view what) const {
    throw Error(ExitCode::internal, op_, fmt::format("{} {}", name, what));
  }

  const char* op_;
};

// The rules of each operation. ops.h says what its tensors are.
void rules(const Gemm& o, const Checker& c) {
  c.itself("a", o.a);
  // op(A) is [m, k] and op(B) is [k, n].
  const std::int64_t m = o.transpose_a ? o.a.cols : o.a.rows;
  const std::int64_t k = o.transpose_a ? o.a.rows : o.a.cols;
  const std::int64_t n = o.transpose_b ? o.b.rows : o.b.cols;
  c.view("b", o.b, o.transpose_b ? n : k, o.transpose_b ? k : n, o.a.dtype);
  // bf16 products may be written in f32.
  const bool wide = o.a.dtype == DType::bf16 && o.d.dtype == DType::f32;
  c.view("d", o.d, m, n, wide ? DType::f32 : o.a.dtype);
  if (o.bias) {
    c.flat("bias", o.bias, n, o.a.dtype);
    c.need(!o.accumulate, "a bias and accumulate exclude each other");
  }
  if (o.epilogue == GemmEpilogue::none) {
    c.need(!o.pre, "pre is without an epilogue");
  } else {
    c.view("pre", o.pre, m, n, o.a.dtype);
    c.need(o.pre.ld >= n, "pre's leading dimension is under its columns");
    c.need(!wide, "an epilogue's d is f32 beside bf16");
    c.need(!o.accumulate, "an epilogue and accumulate exclude each other");
    c.need(!o.bias || o.epilogue == GemmEpilogue::gelu, "dgelu and a bias exclude each other");
    c.supported(
        o.pre.ld % kPreElements == 0 &&
            reinterpret_cast<std::uintptr_t>(o.pre.data) % kPreAlignment == 0,
        "rows of pre do not begin at multiples of 8 elements, or it not at one of 16 bytes");
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  c.supported(std::max({m, n, k, o.a.ld, o.b.ld, o.d.ld, o.pre.ld}) <= kMost,
              "a dimension over 2^31 - 1 is more than libraries take");
}

void rules(const BiasGrad& o, const Checker& c) {
  c.itself("dy", o.dy);
  const DType sums = compute_dtype(o.dy.dtype);
  c.flat("dbias", o.dbias, o.dy.cols, sums);
  c.scratch("partials", o.partials, bias_grad_partials(o.dy.rows, o.dy.cols), sums);
}

// Requires what the two passes of attention have in common.
void attention(const AttentionShape& s, const Tensor& qkv, const Tensor& out, const Tensor& lse,
               const Checker& c) {
  c.need(s.batch > 0 && s.seq > 0 && s.q_heads > 0 && s.kv_heads > 0 && s.head_dim > 0,
         "a dimension is not positive");
  c.need(s.q_heads % s.kv_heads == 0,
         fmt::format("{} query heads are no multiple of {} key heads", s.q_heads, s.kv_heads));
  c.floating("qkv", qkv);
  c.view("qkv", qkv, s.batch * s.seq, (s.q_heads + 2 * s.kv_heads) * s.head_dim, qkv.dtype);
  c.view("out", out, s.batch * s.seq, s.q_heads * s.head_dim, qkv.dtype);
  c.view("lse", lse, s.batch * s.q_heads, s.seq, compute_dtype(qkv.dtype));
}

void rules(const Rope& o, const Checker& c) {
  const AttentionShape& s = o.shape;
  c.need(s.batch > 0 && s.seq > 0 && s.q_heads > 0 && s.kv_heads > 0 && s.head_dim > 0,
         "a dimension is not positive");
  c.need(s.head_dim % 2 == 0, fmt::format("head_dim {} is odd", s.head_dim));
  c.need(o.theta > 0, "theta is not positive");
  c.floating("qkv", o.qkv);
  c.view("qkv", o.qkv, s.batch * s.seq, (s.q_heads + 2 * s.kv_heads) * s.head_dim, o.qkv.dtype);
}

void rules(const AttentionForward& o, const Checker& c) {
  attention(o.shape, o.qkv, o.out, o.lse, c);
}

void rules(const AttentionBackward& o, const Checker& c) {
  attention(o.shape, o.qkv, o.out, o.lse, c);
  c.view("dout", o.dout, o.out.rows, o.out.cols, o.qkv.dtype);
  c.view("dqkv", o.dqkv, o.qkv.rows, o.qkv.cols, o.qkv.dtype);
  c.view("row_sum", o.row_sum, o.lse.rows, o.lse.cols, o.lse.dtype);
}

// Returns the dtype of the branches beside a residual stream: bf16 may go with f32, otherwise it is
// the stream's own.
DType branch_dtype(const Tensor& residual, const Tensor& branch) {
  const bool wide = residual.dtype == DType::f32 && branch.dtype == DType::bf16;
  return wide ? DType::bf16 : residual.dtype;
}

void rules(const NormForward& o, const Checker& c) {
  c.itself("x", o.x);
  const DType statistics = compute_dtype(o.x.dtype);
  const DType branch = branch_dtype(o.x, o.y);
  if (o.add) {
    c.view("add", o.add, o.x.rows, o.x.cols, branch);
    c.view("sum", o.sum, o.x.rows, o.x.cols, o.x.dtype);
  }
  c.view("y", o.y, o.x.rows, o.x.cols, branch);
  c.flat("gain", o.gain, o.x.cols, o.x.dtype);
  if (o.bias) c.flat("bias", o.bias, o.x.cols, o.x.dtype);
  if (o.kind == model::Norm::layernorm) c.flat("mean", o.mean, o.x.rows, statistics);
  c.flat("rstd", o.rstd, o.x.rows, statistics);
}

void rules(const NormBackward& o, const Checker& c) {
  c.itself("sum", o.sum);
  const std::int64_t rows = o.sum.rows;
  const std::int64_t cols = o.sum.cols;
  const DType dtype = o.sum.dtype;
  const DType statistics = compute_dtype(dtype);
  c.view("dy", o.dy, rows, cols, branch_dtype(o.sum, o.dy));
  if (o.dsum_in) c.view("dsum_in", o.dsum_in, rows, cols, dtype);
  c.view("dsum", o.dsum, rows, cols, dtype);
  c.flat("gain", o.gain, cols, dtype);
  if (o.kind == model::Norm::layernorm) c.flat("mean", o.mean, rows, statistics);
  c.flat("rstd", o.rstd, rows, statistics);
  c.flat("dgain", o.dgain, cols, statistics);
  if (o.dbias) c.flat("dbias", o.dbias, cols, statistics);
  c.scratch("partials", o.partials, norm_partials(rows, cols), statistics);
}

void rules(const ActForward& o, const Checker& c) {
  c.itself("x", o.x);
  // swiglu multiplies two halves of x, so y has half as many columns.
  const std::int64_t halves = o.kind == model::Activation::swiglu ? 2 : 1;
  c.need(o.x.cols % halves == 0, "x has an odd number of columns, not two halves");
  c.view("y", o.y, o.x.rows, o.x.cols / halves, o.x.dtype);
}

void rules(const ActBackward& o, const Checker& c) {
  c.itself("x", o.x);
  const std::int64_t halves = o.kind == model::Activation::swiglu ? 2 : 1;
  c.need(o.x.cols % halves == 0, "x has an odd number of columns, not two halves");
  c.view("dy", o.dy, o.x.rows, o.x.cols / halves, o.x.dtype);
  c.view("dx", o.dx, o.x.rows, o.x.cols, o.x.dtype);
}

void rules(const Embed& o, const Checker& c) {
  c.itself("y", o.y);
  c.flat("tokens", o.tokens, o.y.rows, DType::i32);
  c.view("table", o.table, o.table.rows, o.y.cols, o.y.dtype);
  if (o.positions) {
    c.view("positions", o.positions, o.positions.rows, o.y.cols, o.y.dtype);
    c.need(o.seq > 0 && o.seq <= o.positions.rows,
           fmt::format("seq {} is not within the {} positions", o.seq, o.positions.rows));
  }
}

void rules(const EmbedBackward& o, const Checker& c) {
  c.itself("dy", o.dy);
  const DType sums = compute_dtype(o.dy.dtype);
  c.need(o.dtable || o.dpositions, "neither dtable nor dpositions is given");
  c.flat("order", o.order, o.dy.rows, DType::i32);
  if (o.dtable) {
    c.view("dtable", o.dtable, o.dtable.rows, o.dy.cols, sums);
    c.flat("starts", o.starts, o.dtable.rows + 1, DType::i32);
  }
  if (o.dpositions) {
    c.view("dpositions", o.dpositions, o.dpositions.rows, o.dy.cols, sums);
    c.need(o.seq > 0 && o.seq <= o.dpositions.rows,
           fmt::format("seq {} is not within the {} positions", o.seq, o.dpositions.rows));
  }
}

void rules(const CrossEntropy& o, const Checker& c) {
  c.itself("logits", o.logits);
  c.need(o.vocab > 0 && o.vocab <= o.logits.cols,
         fmt::format("vocab {} is not within the {} columns of logits", o.vocab, o.logits.cols));
  c.flat("targets", o.targets, o.logits.rows, DType::i32);
  c.flat("row_loss", o.row_loss, o.logits.rows, compute_dtype(o.logits.dtype));
  c.need(o.in != nullptr, "in is missing");
}

void rules(const SumLoss& o, const Checker& c) {
  c.itself("row_loss", o.row_loss);
  c.flat("row_loss", o.row_loss, o.row_loss.cols, compute_dtype(o.row_loss.dtype));
  c.need(o.in != nullptr && o.state != nullptr, "in or state is missing");
}

void rules(const Cast& o, const Checker& c) {
  c.itself("src", o.src);
  c.floating("dst", o.dst);
  c.view("dst", o.dst, o.src.rows, o.src.cols, o.dst.dtype);
}

void rules(const SquaredNorm& o, const Checker& c) {
  c.itself("x", o.x);
  c.need(o.x.rows == 1 || o.x.ld == o.x.cols, "x is not contiguous");
  c.need(o.partials != nullptr, "partials is missing");
}

void rules(const FinishNorm& o, const Checker& c) {
  c.need(o.count >= 0 && (o.partials != nullptr || o.count == 0), "partials is missing");
  c.need(o.in != nullptr && o.state != nullptr, "in or state is missing");
}

void rules(const AdamW& o, const Checker& c) {
  const std::int64_t n = o.master.cols;
  c.flat("master", o.master, n, DType::f32);
  c.flat("grad", o.grad, n, DType::f32);
  c.flat("m", o.m, n, DType::f32);
  c.flat("v", o.v, n, DType::f32);
  if (o.param) {
    c.flat("param", o.param, n, o.param.dtype == DType::bf16 ? DType::bf16 : DType::f32);
  }
  c.need(o.decay_end >= 0 && o.decay_end <= n,
         fmt::format("decay_end {} is not within the {} elements", o.decay_end, n));
  c.need(o.in != nullptr && o.state != nullptr, "in or state is missing");
}

void rules(const Init& o, const Checker& c) {
  c.itself("dst", o.dst);
  c.need(o.dst.rows == 1 || o.dst.ld == o.dst.cols, "dst is not contiguous");
}

}  // namespace

void check(const Op& op) {
  const Checker checker(op);
  std::visit([&checker](const auto& o) { rules(o, checker); }, op);
}

}  // namespace tessera::trainer
