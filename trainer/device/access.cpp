// SPDX-License-Identifier: Apache-2.0
// The bytes that an operation reads and writes. A view of some columns of a wider tensor gives a
// range for each row, so that its neighbours in the row do not count.
#include "trainer/device/ops.h"

namespace tessera::trainer {
namespace {

class Ranges {
 public:
  void read(const Tensor& t) { add(result_.reads, t); }
  void write(const Tensor& t) { add(result_.writes, t); }
  void write(const Tensor& t, bool accumulate) {
    if (accumulate) read(t);
    write(t);
  }
  template <class T>
  void read(const T* p, std::int64_t count = 1) {
    add(result_.reads, p, count);
  }
  template <class T>
  void write(const T* p, std::int64_t count = 1) {
    add(result_.writes, p, count);
  }
  Access take() { return std::move(result_); }

 private:
  using List = std::vector<std::span<const std::byte>>;

  static void add(List& list, const Tensor& t) {
    if (!t || t.rows == 0 || t.cols == 0) return;
    const auto* data = static_cast<const std::byte*>(t.data);
    const std::int64_t element = bytes_of(t.dtype);
    if (t.rows == 1 || t.ld == t.cols) {
      list.emplace_back(data, static_cast<std::size_t>(t.rows * t.cols * element));
      return;
    }
    for (std::int64_t row = 0; row < t.rows; ++row) {
      list.emplace_back(data + row * t.ld * element, static_cast<std::size_t>(t.cols * element));
    }
  }
  template <class T>
  static void add(List& list, const T* p, std::int64_t count) {
    if (p == nullptr || count == 0) return;
    list.push_back(std::as_bytes(std::span<const T>(p, static_cast<std::size_t>(count))));
  }

  Access result_;
};

void ranges(const Gemm& o, Ranges& r) {
  r.read(o.a);
  r.read(o.b);
  r.read(o.bias);
  if (o.epilogue == GemmEpilogue::gelu) {
    r.write(o.pre);
  } else {
    r.read(o.pre);
  }
  r.write(o.d, o.accumulate);
}
void ranges(const BiasGrad& o, Ranges& r) {
  r.read(o.dy);
  r.write(o.partials);
  r.write(o.dbias, o.accumulate);
}
void ranges(const Rope& o, Ranges& r) {
  Tensor rotated = o.qkv;
  rotated.cols = (o.shape.q_heads + o.shape.kv_heads) * o.shape.head_dim;
  r.write(rotated, true);
}
void ranges(const AttentionForward& o, Ranges& r) {
  r.read(o.qkv);
  r.write(o.out);
  r.write(o.lse);
}
void ranges(const AttentionBackward& o, Ranges& r) {
  r.read(o.qkv);
  r.read(o.out);
  r.read(o.lse);
  r.read(o.dout);
  r.write(o.dqkv);
  r.write(o.row_sum);
}
void ranges(const NormForward& o, Ranges& r) {
  r.read(o.x);
  r.read(o.add);
  r.read(o.gain);
  r.read(o.bias);
  if (o.add) r.write(o.sum);
  r.write(o.y);
  if (o.kind == model::Norm::layernorm) r.write(o.mean);
  r.write(o.rstd);
}
void ranges(const NormBackward& o, Ranges& r) {
  r.read(o.dy);
  r.read(o.dsum_in);
  r.read(o.sum);
  r.read(o.gain);
  if (o.kind == model::Norm::layernorm) r.read(o.mean);
  r.read(o.rstd);
  r.write(o.dsum);
  r.write(o.partials);
  r.write(o.dgain, o.accumulate);
  r.write(o.dbias, o.accumulate);
}
void ranges(const ActForward& o, Ranges& r) {
  r.read(o.x);
  r.write(o.y);
}
void ranges(const ActBackward& o, Ranges& r) {
  r.read(o.x);
  r.read(o.dy);
  r.write(o.dx);
}
void ranges(const Embed& o, Ranges& r) {
  r.read(o.tokens);
  r.read(o.table);
  r.read(o.positions);
  r.write(o.y);
}
void ranges(const EmbedBackward& o, Ranges& r) {
  r.read(o.order);
  r.read(o.starts);
  r.read(o.dy);
  r.write(o.dtable, o.accumulate_table);
  r.write(o.dpositions, o.accumulate_positions);
}
void ranges(const CrossEntropy& o, Ranges& r) {
  r.read(o.targets);
  r.read(o.in);
  r.write(o.logits, true);
  r.write(o.row_loss);
}
void ranges(const SumLoss& o, Ranges& r) {
  r.read(o.row_loss);
  r.read(o.in);
  if (o.accumulate) r.read(&o.state->loss);
  r.write(&o.state->loss);
}
void ranges(const Cast& o, Ranges& r) {
  r.read(o.src);
  r.write(o.dst, o.accumulate);
}
void ranges(const SquaredNorm& o, Ranges& r) {
  r.read(o.x);
  r.write(o.partials, squared_norm_partials(o.x.rows * o.x.cols));
}
void ranges(const FinishNorm& o, Ranges& r) {
  r.read(o.partials, o.count);
  r.read(o.in);
  r.read(&o.state->loss);
  r.write(&o.state->grad_norm);
  r.write(&o.state->clip);
  r.write(&o.state->not_finite);
}
void ranges(const AdamW& o, Ranges& r) {
  r.read(o.grad);
  r.read(o.in);
  r.read(&o.state->clip);
  r.read(&o.state->not_finite);
  r.write(o.master, true);
  r.write(o.m, true);
  r.write(o.v, true);
  r.write(o.param);
}
void ranges(const Init& o, Ranges& r) {
  r.write(o.dst);
}

}  // namespace

Access access(const Op& op) {
  Ranges r;
  std::visit([&r](const auto& o) { ranges(o, r); }, op);
  return r.take();
}

}  // namespace tessera::trainer
