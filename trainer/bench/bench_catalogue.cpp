#include "trainer/bench/bench_catalogue.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lib/base/numbers.h"
#include "trainer/device/random.h"

namespace tessera::trainer {

namespace {

constexpr std::int64_t kAlignment = 256;

// Any of the vocabulary, as in a synthetic batch.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::uint32_t word = philox({static_cast<std::uint32_t>(i), 0, 0, 0}, {17, 0})[0];
    tokens[i] = static_cast<std::int32_t>(word % static_cast<std::uint64_t>(vocab));
  }
  return tokens;
}

class Catalogue {
 public:
  explicit Catalogue(const BenchShape& shape)
      : shape_(shape),
        rows_(shape.seq * shape.sequences),
        padded_(round_up(shape.vocab, 128)),
        attention_{.batch = shape.sequences,
                   .seq = shape.seq,
                   .q_heads = shape.q_heads,
                   .kv_heads = shape.kv_heads,
                   .head_dim = shape.head_dim,
                   .scale = 1.0F / static_cast<float>(shape.head_dim)} {}

  std::vector<BenchEntry> entries() {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      products(dtype);
      if (shape_.fused_gelu) fused_products(dtype);
      attention(dtype);
      norms(dtype);
      activations(dtype);
      embeddings(dtype);
      loss(dtype);
      casts(dtype);
      updates(dtype);
    }
    without_activations();
    return std::move(entries_);
  }

 private:
  template <class Build>
  void add(std::string variant, DType dtype, Build build) {
    entries_.push_back(
        {std::move(variant), dtype, [build](BenchRoom& room) -> Op { return build(room); }});
  }

  void products(DType dtype) {
    const auto [rows, d, ffn] = std::tuple(rows_, shape_.d_model, shape_.ffn);
    add("forward", dtype, [=](BenchRoom& room) {
      return Gemm{.a = room.random(dtype, rows, d),
                  .b = room.random(dtype, ffn, d),
                  .d = room.empty(dtype, rows, ffn),
                  .bias = room.random(dtype, 1, ffn)};
    });
    add("dX", dtype, [=](BenchRoom& room) {
      return Gemm{.a = room.random(dtype, rows, ffn),
                  .b = room.random(dtype, ffn, d),
                  .d = room.empty(dtype, rows, d),
                  .transpose_b = false};
    });
    add("dW", dtype, [=](BenchRoom& room) {
      return Gemm{.a = room.random(dtype, rows, ffn),
                  .b = room.random(dtype, rows, d),
                  .d = room.random(DType::f32, ffn, d),
                  .transpose_a = true,
                  .transpose_b = false,
                  .accumulate = true};
    });
    add("", dtype, [=](BenchRoom& room) {
      return BiasGrad{.dy = room.random(dtype, rows, ffn),
                      .dbias = room.empty(DType::f32, 1, ffn),
                      .partials = room.empty(DType::f32, 1, bias_grad_partials(rows, ffn))};
    });
  }

  // The MLP's, forward into its hidden width and backward to that.
  void fused_products(DType dtype) {
    const auto [rows, d, ffn] = std::tuple(rows_, shape_.d_model, shape_.ffn);
    add("forward gelu", dtype, [=](BenchRoom& room) {
      return Gemm{.a = room.random(dtype, rows, d),
                  .b = room.random(dtype, ffn, d),
                  .d = room.empty(dtype, rows, ffn),
                  .bias = room.random(dtype, 1, ffn),
                  .epilogue = GemmEpilogue::gelu,
                  .pre = room.empty(dtype, rows, ffn)};
    });
    add("dX dgelu", dtype, [=](BenchRoom& room) {
      return Gemm{.a = room.random(dtype, rows, d),
                  .b = room.random(dtype, d, ffn),
                  .d = room.empty(dtype, rows, ffn),
                  .transpose_b = false,
                  .epilogue = GemmEpilogue::dgelu,
                  .pre = room.random(dtype, rows, ffn)};
    });
  }

  void attention(DType dtype) {
    const AttentionShape s = attention_;
    const std::int64_t rows = rows_;
    const std::int64_t width = s.q_heads * s.head_dim;
    const std::int64_t packed = width + 2 * s.kv_heads * s.head_dim;
    const auto forward = [=](BenchRoom& room) {
      return AttentionForward{.shape = s,
                              .qkv = room.random(dtype, rows, packed),
                              .out = room.empty(dtype, rows, width),
                              .lse = room.empty(DType::f32, s.batch * s.q_heads, s.seq)};
    };
    add("", dtype,
        [=](BenchRoom& room) { return Rope{.shape = s, .qkv = room.random(dtype, rows, packed)}; });
    add("", dtype, forward);
    add("", dtype, [=](BenchRoom& room) {
      const AttentionForward made = forward(room);
      room.before(made);
      return AttentionBackward{.shape = s,
                               .qkv = made.qkv,
                               .out = made.out,
                               .lse = made.lse,
                               .dout = room.random(dtype, rows, width),
                               .dqkv = room.empty(dtype, rows, packed),
                               .row_sum = room.empty(DType::f32, s.batch * s.q_heads, s.seq)};
    });
  }

  void norms(DType dtype) {
    const auto [rows, d] = std::pair(rows_, shape_.d_model);
    for (const model::Norm kind : {model::Norm::layernorm, model::Norm::rmsnorm}) {
      const bool layernorm = kind == model::Norm::layernorm;
      const auto forward = [=](BenchRoom& room) {
        return NormForward{.kind = kind,
                           .x = room.random(dtype, rows, d),
                           .add = room.random(dtype, rows, d),
                           .sum = room.empty(dtype, rows, d),
                           .y = room.empty(dtype, rows, d),
                           .gain = room.random(dtype, 1, d, 0.1F, 1),
                           .bias = layernorm ? room.random(dtype, 1, d) : Tensor{},
                           .mean = layernorm ? room.empty(DType::f32, 1, rows) : Tensor{},
                           .rstd = room.empty(DType::f32, 1, rows)};
      };
      const std::string name(to_text(kind));
      add(name, dtype, forward);
      add(name, dtype, [=](BenchRoom& room) {
        const NormForward made = forward(room);
        room.before(made);
        return NormBackward{.kind = kind,
                            .dy = room.random(dtype, rows, d),
                            .dsum_in = room.random(dtype, rows, d),
                            .sum = made.sum,
                            .gain = made.gain,
                            .mean = made.mean,
                            .rstd = made.rstd,
                            .dsum = room.empty(dtype, rows, d),
                            .dgain = room.empty(DType::f32, 1, d),
                            .dbias = layernorm ? room.empty(DType::f32, 1, d) : Tensor{},
                            .partials = room.empty(DType::f32, 1, norm_partials(rows, d))};
      });
    }
  }

  void activations(DType dtype) {
    const auto [rows, ffn] = std::pair(rows_, shape_.ffn);
    for (const auto& [kind, kind_name] : Names<model::Activation>::table) {
      const model::Activation which = kind;
      const std::int64_t width = kind == model::Activation::swiglu ? 2 * ffn : ffn;
      const std::string name(kind_name);
      add(name, dtype, [=](BenchRoom& room) {
        return ActForward{
            .kind = which, .x = room.random(dtype, rows, width), .y = room.empty(dtype, rows, ffn)};
      });
      add(name, dtype, [=](BenchRoom& room) {
        return ActBackward{.kind = which,
                           .x = room.random(dtype, rows, width),
                           .dy = room.random(dtype, rows, ffn),
                           .dx = room.empty(dtype, rows, width)};
      });
    }
  }

  void embeddings(DType dtype) {
    const auto [rows, d, seq] = std::tuple(rows_, shape_.d_model, shape_.seq);
    const auto [vocab, padded] = std::pair(shape_.vocab, padded_);
    add("", dtype, [=](BenchRoom& room) {
      return Embed{.tokens = room.integers(random_tokens(rows, vocab)),
                   .table = room.random(dtype, padded, d),
                   .positions = room.random(dtype, seq, d),
                   .y = room.empty(dtype, rows, d),
                   .seq = seq};
    });
    add("", dtype, [=](BenchRoom& room) {
      const std::vector<std::int32_t> tokens = random_tokens(rows, vocab);
      std::vector<std::int32_t> order(tokens.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(
          order, {}, [&](std::int32_t row) { return tokens[static_cast<std::size_t>(row)]; });
      std::vector<std::int32_t> starts(static_cast<std::size_t>(padded) + 1, 0);
      for (const std::int32_t token : tokens) ++starts[static_cast<std::size_t>(token) + 1];
      std::partial_sum(starts.begin(), starts.end(), starts.begin());
      return EmbedBackward{.order = room.integers(order),
                           .starts = room.integers(starts),
                           .dy = room.random(dtype, rows, d),
                           .dtable = room.random(DType::f32, padded, d),
                           .dpositions = room.empty(DType::f32, seq, d),
                           .seq = seq,
                           .accumulate_table = true};
    });
  }

  void loss(DType dtype) {
    const auto [rows, vocab, padded] = std::tuple(shape_.head_rows, shape_.vocab, padded_);
    add("", dtype, [=](BenchRoom& room) {
      return CrossEntropy{.logits = room.random(dtype, rows, padded),
                          .targets = room.integers(random_tokens(rows, vocab)),
                          .row_loss = room.empty(DType::f32, 1, rows),
                          .vocab = vocab,
                          .in = room.value(StepInputs{.inv_tokens = 1e-3F})};
    });
  }

  void casts(DType dtype) {
    const auto [rows, cols] = std::pair(shape_.ffn, shape_.d_model);
    const DType to = dtype == DType::f32 ? DType::bf16 : DType::f32;
    add(dtype == DType::f32 ? "to bf16" : "to f32", dtype, [=](BenchRoom& room) {
      return Cast{.src = room.random(dtype, rows, cols), .dst = room.empty(to, rows, cols)};
    });
  }

  void updates(DType dtype) {
    const std::int64_t n = block_elements();
    add(dtype == DType::f32 ? "" : "to bf16", dtype, [=](BenchRoom& room) {
      return AdamW{.grad = room.random(DType::f32, 1, n, 1e-2F),
                   .master = room.random(DType::f32, 1, n, 2e-2F),
                   .m = room.random(DType::f32, 1, n, 1e-2F),
                   .v = room.random(DType::f32, 1, n, 0, 1e-4F),
                   .param = dtype == DType::f32 ? Tensor{} : room.empty(dtype, 1, n),
                   .decay_end = n,
                   .in = room.value(StepInputs{.lr = 1e-4F, .bias1 = 0.1F, .bias2 = 0.05F}),
                   .state = room.value(StepState{})};
    });
  }

  void without_activations() {
    const std::int64_t rows = rows_;
    const std::int64_t n = block_elements();
    add("", DType::f32, [=](BenchRoom& room) {
      return SumLoss{.row_loss = room.random(DType::f32, 1, rows),
                     .in = room.value(StepInputs{.inv_tokens = 1e-3F}),
                     .state = room.value(StepState{})};
    });
    const auto partials_of = [](BenchRoom& room, const Tensor& x) {
      return static_cast<double*>(room.empty(DType::f64, 1, squared_norm_partials(x.cols)).data);
    };
    add("", DType::f32, [=](BenchRoom& room) {
      const Tensor x = room.random(DType::f32, 1, n);
      return SquaredNorm{.x = x, .partials = partials_of(room, x)};
    });
    add("", DType::f32, [=](BenchRoom& room) {
      const Tensor x = room.random(DType::f32, 1, n);
      const SquaredNorm made{.x = x, .partials = partials_of(room, x)};
      room.before(made);
      return FinishNorm{.partials = made.partials,
                        .count = squared_norm_partials(n),
                        .in = room.value(StepInputs{.max_grad_norm = 1}),
                        .state = room.value(StepState{})};
    });
    add("", DType::f32, [=](BenchRoom& room) {
      return Init{.dst = room.empty(DType::f32, 1, n), .stddev = 0.02F, .seed = 17};
    });
  }

  // Matrices of one block.
  std::int64_t block_elements() const {
    const std::int64_t heads = 2 * shape_.q_heads + 2 * shape_.kv_heads;
    return shape_.d_model * (heads * shape_.head_dim + 2 * shape_.ffn);
  }

  BenchShape shape_;
  std::int64_t rows_;
  std::int64_t padded_;
  AttentionShape attention_;
  std::vector<BenchEntry> entries_;
};

}  // namespace

std::byte* BenchRoom::take(std::int64_t bytes) {
  std::byte* at = base_ + used_;
  used_ += round_up(bytes, kAlignment);
  return at;
}

std::byte* BenchRoom::bytes(const void* content, std::size_t size) {
  std::byte* at = take(static_cast<std::int64_t>(size));
  Upload& upload = uploads_.emplace_back(Upload{at, std::vector<std::byte>(size)});
  std::memcpy(upload.content.data(), content, size);
  return at;
}

Tensor BenchRoom::empty(DType dtype, std::int64_t rows, std::int64_t cols) {
  return {.data = take(rows * cols * bytes_of(dtype)),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .ld = cols};
}

Tensor BenchRoom::random(DType dtype, std::int64_t rows, std::int64_t cols, float stddev,
                         float mean) {
  const Tensor tensor = empty(dtype, rows, cols);
  const Tensor made = dtype == DType::f32 ? tensor : empty(DType::f32, rows, cols);
  Tensor flat = made;
  flat.rows = 1;
  flat.cols = flat.ld = rows * cols;
  first_.emplace_back(Init{.dst = flat, .mean = mean, .stddev = stddev, .seed = seed_++});
  if (dtype != DType::f32) first_.emplace_back(Cast{.src = made, .dst = tensor});
  return tensor;
}

Tensor BenchRoom::integers(const std::vector<std::int32_t>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return {.data = bytes(values.data(), values.size() * sizeof(std::int32_t)),
          .dtype = DType::i32,
          .rows = 1,
          .cols = count,
          .ld = count};
}

void BenchRoom::upload(Device& device) const {
  for (const Upload& upload : uploads_) {
    device.copy(Stream::compute, upload.to, upload.content.data(),
                static_cast<std::int64_t>(upload.content.size()));
  }
}

std::vector<BenchEntry> bench_catalogue(const BenchShape& shape) {
  return Catalogue(shape).entries();
}

}  // namespace tessera::trainer
