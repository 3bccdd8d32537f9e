// SPDX-License-Identifier: Apache-2.0
#include "trainer/selftest/cases.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "lib/base/numbers.h"
#include "trainer/device/random.h"

namespace tessera::trainer::test {
namespace {

std::vector<std::int32_t> token_list(std::int64_t rows, std::int32_t vocab) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t t = 0; t < rows; ++t) {
    tokens.push_back(static_cast<std::int32_t>((t * t * 7 + t / 3) % vocab));
  }
  return tokens;
}

// gap: between the rows of x; none: those of the others are contiguous too.
Case activation(model::Activation kind, std::int64_t rows, std::int64_t cols, double scale,
                std::int64_t gap = 3) {
  const bool swiglu = kind == model::Activation::swiglu;
  Case c;
  c.name = std::string(to_text(kind)) + " " + std::to_string(rows) + "x" + std::to_string(cols) +
           " scale " + std::to_string(static_cast<int>(scale)) + " gap " + std::to_string(gap);
  c.build = [=](Arena& a) {
    const Tensor x = a.in("x", rows, swiglu ? 2 * cols : cols, scale, 0, gap);
    const Tensor dy = a.in("dy", rows, cols, 1, 0, gap == 3 ? 1 : gap);
    return std::vector<Op>{ActForward{kind, x, a.out("y", rows, cols, gap == 3 ? 2 : 2 * gap)},
                           ActBackward{kind, x, dy, a.out("dx", rows, x.cols)}};
  };
  c.objective = {{"y", "dy"}};
  c.gradients = {{"x", "dx"}};
  return c;
}

// dx may be dy, or x.
Case activation_in_place(model::Activation kind, std::int64_t cols, bool onto_x) {
  const bool swiglu = kind == model::Activation::swiglu;
  Case c;
  c.name = std::string(to_text(kind)) + " 5x" + std::to_string(cols) + " in place of " +
           (onto_x ? "x" : "dy");
  c.build = [=](Arena& a) {
    const Tensor x = a.in("x", 5, swiglu ? 2 * cols : cols, 2);
    const Tensor dy = a.in("dy", 5, cols);
    a.compare(onto_x ? "x" : "dy");
    return std::vector<Op>{ActBackward{kind, x, dy, onto_x ? x : dy}};
  };
  return c;
}

// Which tokens come: some of the table's, many never, among them the last three; frequent ones,
// where every third row's is one and the same, and another is that of 16; or any, as in synthetic
// data.
enum class Tokens { some, frequent, any };

struct EmbeddingCase {
  std::int64_t batch, seq, cols;
  bool positions = false;
  bool accumulate = false;            // the table's gradient
  bool accumulate_positions = false;  // that of positions
  Tokens tokens = Tokens::some;
  std::int64_t more = 0;  // rows behind the last whole sequence
  std::int64_t vocab = 72;
  std::int64_t table = 75;  // rows of it
  std::int64_t spare = 2;   // positions that no sequence has
  std::int64_t gap = 1;     // between rows of y
};

std::vector<std::int32_t> tokens_of(const EmbeddingCase& e, std::int64_t rows) {
  auto tokens = token_list(rows, static_cast<std::int32_t>(e.vocab));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (e.tokens == Tokens::any) {
      const std::uint32_t word = philox({static_cast<std::uint32_t>(t), 0, 0, 0}, {17, 0})[0];
      tokens[t] = static_cast<std::int32_t>(word % static_cast<std::uint64_t>(e.vocab));
    } else if (e.tokens == Tokens::frequent) {
      if (t % 3 == 0) {
        tokens[t] = 5;
      } else if (t % 3 == 1 && t < 48) {
        tokens[t] = 7;
      } else if (tokens[t] == 7) {
        tokens[t] = 8;
      }
    }
  }
  return tokens;
}

Case embedding(const EmbeddingCase& e) {
  const std::int64_t rows = e.batch * e.seq + e.more;
  Case c;
  c.name = "embedding " + std::to_string(rows) + "x" + std::to_string(e.cols) +
           (e.positions ? " positions" : "") + (e.accumulate ? " accumulate" : "") +
           (e.tokens == Tokens::frequent ? " frequent" : "");
  c.build = [=](Arena& a) {
    const std::vector<std::int32_t> tokens = tokens_of(e, rows);
    std::vector<std::int32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(
        order, {}, [&](std::int32_t row) { return tokens[static_cast<std::size_t>(row)]; });
    std::vector<std::int32_t> starts(static_cast<std::size_t>(e.table) + 1, 0);
    for (const std::int32_t token : tokens) ++starts[static_cast<std::size_t>(token) + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    const auto gradient = [&](const char* name, std::int64_t r, bool adds) {
      return adds ? a.accumulator(name, r, e.cols) : a.statistics(name, r, e.cols);
    };
    Embed forward{a.integers(tokens),
                  a.in("table", e.table, e.cols),
                  {},
                  a.out("y", rows, e.cols, e.cols % 8 == 0 ? 8 * e.gap : e.gap),
                  e.seq};
    EmbedBackward backward{a.integers(order),
                           a.integers(starts),
                           a.in("dy", rows, e.cols),
                           gradient("dtable", e.table, e.accumulate),
                           {},
                           e.seq,
                           e.accumulate,
                           e.accumulate_positions};
    if (e.positions) {
      forward.positions = a.in("positions", e.seq + e.spare, e.cols);
      backward.dpositions = gradient("dpositions", e.seq + e.spare, e.accumulate_positions);
    }
    return std::vector<Op>{forward, backward};
  };
  c.objective = {{"y", "dy"}};
  if (!e.accumulate) c.gradients = {{"table", "dtable"}};
  if (!e.accumulate_positions && e.positions) c.gradients.push_back({"positions", "dpositions"});
  return c;
}

Case cross_entropy(std::int64_t rows, std::int64_t vocab, std::int64_t cols, double scale,
                   std::int64_t gap = 5) {
  Case c;
  c.name = "cross_entropy " + std::to_string(rows) + "x" + std::to_string(vocab) + " of " +
           std::to_string(cols) + " gap " + std::to_string(gap);
  c.constant_weight = 0.03125;
  c.build = [=, weight = c.constant_weight](Arena& a) {
    const Tensor logits = a.in("logits", rows, cols, scale, 0, gap);
    a.compare("logits");
    auto targets = token_list(rows, static_cast<std::int32_t>(vocab));
    if (rows > 1) targets[1] = -100;
    targets[0] = static_cast<std::int32_t>(vocab) - 1;
    StepInputs in;
    in.inv_tokens = static_cast<float>(weight);
    const StepInputs* inputs = a.inputs(in);
    StepState before;
    before.loss = 0.5;
    StepState* state = a.state(before);
    const Tensor row_loss = a.statistics("row_loss", 1, rows);
    return std::vector<Op>{CrossEntropy{logits, a.integers(targets), row_loss, vocab, inputs},
                           SumLoss{row_loss, inputs, state, true}};
  };
  c.objective = {{"row_loss", ""}};
  c.gradients = {{"logits", "logits"}};
  return c;
}

Case loss_of_rows(std::int64_t rows) {
  Case c;
  c.name = "loss of " + std::to_string(rows) + " rows";
  c.build = [=](Arena& a) {
    StepInputs in;
    in.inv_tokens = 0.25F;
    return std::vector<Op>{
        SumLoss{a.wide_in("row_loss", 1, rows, 1, 3), a.inputs(in), a.state({}), false}};
  };
  return c;
}

Case casts(std::int64_t rows, std::int64_t cols, std::int64_t gap = 1) {
  Case c;
  c.name = "casts " + std::to_string(rows) + "x" + std::to_string(cols);
  c.build = [=](Arena& a) {
    const Tensor x = a.in("x", rows, cols, 1, 0, gap);
    const Tensor wide = a.statistics("wide", rows, cols);
    const Tensor sum = a.accumulator("sum", rows, cols);
    const Tensor back = a.out("back", rows, cols, 2 * gap);
    const Tensor added = a.in("added", rows, cols);
    a.compare("added");
    return std::vector<Op>{Cast{x, wide}, Cast{x, sum, true}, Cast{sum, back},
                           Cast{sum, added, true}, Cast{x, a.out("same", rows, cols)}};
  };
  return c;
}

// Several parts, the last of them short; the norm is over max_grad_norm.
Case gradient_norm(std::int64_t elements) {
  Case c;
  c.name = "gradient norm of " + std::to_string(elements);
  c.build = [=](Arena& a) {
    const Tensor x = a.in("x", 1, elements);
    StepInputs in;
    in.max_grad_norm = 1;
    const std::int64_t parts = squared_norm_partials(elements);
    // Doubles in two scratch elements each when the compute dtype is f32.
    auto* partials = static_cast<double*>(a.scratch(2 * parts).data);
    return std::vector<Op>{SquaredNorm{x, partials},
                           FinishNorm{partials, parts, a.inputs(in), a.state({})}};
  };
  return c;
}

Case adamw(std::int64_t elements, bool low_param, std::int64_t decay_end = 12'345) {
  Case c;
  c.name = "adamw " + std::to_string(elements) + (low_param ? " with parameters" : "");
  c.has_f64 = false;
  c.build = [=](Arena& a) {
    StepInputs in;
    in.lr = 1e-2F;
    in.weight_decay = 0.1F;
    in.bias1 = 1 - 0.9F;
    in.bias2 = 1 - 0.95F;
    StepState state;
    state.clip = 0.5;
    AdamW op{a.accumulator("grad", 1, elements),
             a.accumulator("master", 1, elements),
             a.accumulator("m", 1, elements, 0.1),
             a.accumulator("v", 1, elements, 0, 0.25),
             {},
             0.9F,
             0.95F,
             1e-8F,
             decay_end,
             a.inputs(in),
             a.state(state)};
    if (low_param) op.param = a.out("param", 1, elements);
    return std::vector<Op>{op};
  };
  return c;
}

Case init(std::int64_t elements, std::uint64_t first_index) {
  Case c;
  c.name = "init of " + std::to_string(elements);
  c.build = [=](Arena& a) {
    return std::vector<Op>{
        Init{a.statistics("weights", 1, elements), 1.5F, 0.02F, 42, first_index},
        Init{a.out("low", 1, elements), 0, 1, (std::uint64_t{7} << 40) + 3, first_index},
        Init{a.out("constant", 1, elements), 0.3F, 0, 42, first_index}};
  };
  return c;
}

void append(std::vector<Case>& all, std::vector<Case> more) {
  std::ranges::move(more, std::back_inserter(all));
}

std::vector<Case> make_cases() {
  using model::Activation;
  std::vector<Case> all = gemm_cases();
  append(all, attention_cases());
  append(all, norm_cases());
  for (const Activation kind : {Activation::gelu_erf, Activation::gelu_tanh, Activation::swiglu}) {
    all.push_back(activation(kind, 7, 133, 1));
    all.push_back(activation(kind, 33, 64, 4));
    // Rows at multiples of 16 bytes, which GPUs read by packs of 8, and rows that follow each
    // other: 37 x 512 are more than a small GPU's threads have in one turn.
    all.push_back(activation(kind, 37, 72, 2, 8));
    all.push_back(activation(kind, 37, 512, 2, 0));
    all.push_back(activation(kind, 6, 76, 2, 0));
    for (const std::int64_t cols : {37, 40}) {
      all.push_back(activation_in_place(kind, cols, true));
      if (kind != Activation::swiglu) all.push_back(activation_in_place(kind, cols, false));
    }
  }
  for (const bool positions : {false, true}) {
    for (const bool accumulate : {false, true})
      all.push_back(embedding({3, 21, 37, positions, accumulate, accumulate}));
  }
  all.push_back(embedding({2, 120, 40, true, false, false, Tokens::frequent}));
  all.push_back(embedding({2, 120, 40, true, true, true, Tokens::frequent}));
  all.push_back(embedding({2, 120, 33, false, true, true, Tokens::frequent}));
  all.push_back(embedding({5, 11, 264, true, true, true, Tokens::frequent, 7}));
  all.push_back(embedding({2, 2, 16'424, true, true, true}));
  all.push_back(cross_entropy(5, 45, 64, 3));
  all.push_back(cross_entropy(5, 45, 64, 3, 8));
  all.push_back(cross_entropy(2, 9001, 9088, 2, 0));
  all.push_back(cross_entropy(3, 25'003, 25'088, 2, 0));
  all.push_back(cross_entropy(4, 128, 128, 2, 0));
  all.push_back(cross_entropy(40, 203, 256, 1));
  all.push_back(cross_entropy(3, 3, 3, 30));
  all.push_back(casts(9, 777));
  all.push_back(loss_of_rows(5003));  // more than any block has threads
  all.push_back(gradient_norm(150'001));
  all.push_back(gradient_norm(150'000));
  all.push_back(adamw(20'011, false));
  all.push_back(adamw(20'011, true));
  all.push_back(adamw(20'008, false));
  all.push_back(adamw(20'008, true));
  all.push_back(init(30'001, 7));
  all.push_back(init(30'000, 1U << 31));
  all.push_back(init(3'000, std::uint64_t{5} << 33));
  // What the benchmark measures of larger ones.
  constexpr DecoderShape kSmall{.d_model = 64,
                                .q_heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .ffn = 96,
                                .vocab = 200,
                                .seq = 24,
                                .sequences = 2,
                                .head_rows = 8,
                                .fused_gelu = true};
  append(all, decoder_cases(kSmall));
  return all;
}

}  // namespace

std::vector<Case> decoder_cases(const DecoderShape& s) {
  constexpr std::int64_t kVocabMultiple = 128;
  const std::int64_t padded_vocab = round_up(s.vocab, kVocabMultiple);
  std::vector<Case> all = decoder_gemm_cases(s);
  append(all, decoder_attention_cases(s));
  append(all, decoder_norm_cases(s));
  const auto add = [&](Case made) -> Case& { return all.emplace_back(std::move(made)); };
  for (const auto& [kind, name] : Names<model::Activation>::table) {
    Case& c = add(activation(kind, s.rows(), s.ffn, 1, 0));
    c.time(0, std::string(name));
    c.time(1, std::string(name));
  }
  Case& tokens = add(embedding({.batch = s.sequences,
                                .seq = s.seq,
                                .cols = s.d_model,
                                .positions = true,
                                .accumulate = true,
                                .tokens = Tokens::any,
                                .vocab = s.vocab,
                                .table = padded_vocab,
                                .spare = 0,
                                .gap = 0}));
  tokens.time(0);
  tokens.time(1);
  add(cross_entropy(s.head_rows, s.vocab, padded_vocab, 1, 0)).time(0);
  // Both in the arena that has both types; a cast is told by what it reads.
  add(casts(s.ffn, s.d_model, 0)).timed = {{0, "to f32", DType::bf16, DType::bf16},
                                           {2, "to bf16", DType::f32, DType::bf16}};
  const std::int64_t n = s.block_elements();
  add(adamw(n, false, n)).timed = {{0, "", DType::f32, DType::f32}};
  add(adamw(n, true, n)).timed = {{0, "to bf16", DType::bf16, DType::bf16}};
  add(loss_of_rows(s.rows())).timed = {{0, "", DType::f32, DType::f32}};
  add(gradient_norm(n)).timed = {{0, "", DType::f32, DType::f32}, {1, "", DType::f32, DType::f32}};
  add(init(n, 0)).timed = {{0, "", DType::f32, DType::f32}};
  for (Case& c : all) c.name = "decoder: " + c.name;
  return all;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = make_cases();
  return all;
}

}  // namespace tessera::trainer::test
