// SPDX-License-Identifier: Apache-2.0
// Rotary positions (Su et al. 2021). A block, or several of them in y, takes one position: its
// cosines and sines serve every sequence and head. Angles are f64, cosines and sines are rounded to
// f32. Rounded once: each element of q and k.
#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

constexpr int kThreads = 128;
// Pairs of a head that one launch rotates: all of them up to a head_dim of 256.
constexpr int kPairs = 128;

// Angle of each pair by position. The host computes them: powers in f64 would take longer than the
// rest.
struct Frequencies {
  double at[kPairs];
};

struct Heads {
  std::int64_t batch, seq;
  std::int64_t count, dim;  // of queries and keys together
  int first_pair, pairs;
};

template <bool kVectorized, class S>
SIMT_KERNEL(kThreads)
void rope(Heads heads, Frequencies frequencies, double direction, Rows<S> qkv) {
  SIMT_SHARED(float, cosine, kPairs);
  SIMT_SHARED(float, sine, kPairs);
  const std::int64_t position = block();
  for (int i = thread(); i < kPairs; i += kThreads) {
    if (i >= heads.pairs) continue;
    const double angle = static_cast<double>(position) * frequencies.at[i];
    cosine[i] = static_cast<float>(std::cos(angle));
    sine[i] = static_cast<float>(direction * std::sin(angle));
  }
  sync();
  const int vectors = (heads.pairs + kVecSize - 1) / kVecSize;  // of half a head
  const int heads_at_once = kThreads / vectors;
  const int first_head = thread() / vectors;
  if (first_head >= heads_at_once) return;
  const int pair = thread() % vectors * kVecSize;
  const std::int64_t remaining = heads.pairs - pair;
  const std::int64_t half = heads.dim / 2;
  float c[kVecSize];
  float s[kVecSize];
  SIMT_UNROLL
  for (int i = 0; i < kVecSize; ++i) {
    c[i] = i < remaining ? cosine[pair + i] : 0.0F;
    s[i] = i < remaining ? sine[pair + i] : 0.0F;
  }
  for (std::int64_t sequence = block_y(); sequence < heads.batch; sequence += blocks_y()) {
    S* const row = qkv.row(sequence * heads.seq + position) + heads.first_pair + pair;
    for (std::int64_t head = first_head; head < heads.count; head += heads_at_once) {
      S* const at = row + head * heads.dim;
      float low[kVecSize];
      float high[kVecSize];
      load<kVectorized>(at, remaining, low);
      load<kVectorized>(at + half, remaining, high);
      SIMT_UNROLL
      for (int i = 0; i < kVecSize; ++i) {
        const float a = low[i];
        const float b = high[i];
        low[i] = a * c[i] - b * s[i];
        high[i] = b * c[i] + a * s[i];
      }
      store<kVectorized>(at, remaining, low);
      store<kVectorized>(at + half, remaining, high);
    }
  }
}

// The grid has enough blocks to fill the GPU twice: more would only compute the same cosines again.
Grid grid_of(const AttentionShape& s, const Launch& where) {
  constexpr std::int64_t kMaxThreadsPerMultiprocessor = 2048;
  const std::int64_t enough = 2 * where.multiprocessors * (kMaxThreadsPerMultiprocessor / kThreads);
  constexpr std::int64_t kMaxY = 65535;
  return {static_cast<unsigned>(s.seq), static_cast<unsigned>(std::clamp<std::int64_t>(
                                            enough / s.seq, 1, std::min(s.batch, kMaxY)))};
}

}  // namespace

void run(const Rope& op, const Launch& where) {
  const AttentionShape& s = op.shape;
  const std::int64_t half = s.head_dim / 2;
  const bool vectorizable = is_vectorizable({&op.qkv}) && half % kVecSize == 0;
  for (std::int64_t first = 0; first < half; first += kPairs) {
    const std::int64_t pairs = std::min<std::int64_t>(kPairs, half - first);
    Frequencies frequencies{};
    for (std::int64_t i = 0; i < pairs; ++i) {
      frequencies.at[i] = std::pow(
          op.theta, -2.0 * static_cast<double>(first + i) / static_cast<double>(s.head_dim));
    }
    const Heads heads{s.batch,
                      s.seq,
                      s.q_heads + s.kv_heads,
                      s.head_dim,
                      static_cast<int>(first),
                      static_cast<int>(pairs)};
    with_vectorization(vectorizable, [&]<bool kVectorized>() {
      with_storage(op.qkv.dtype, [&]<class S>() {
        launch("rope", rope<kVectorized, S>, grid_of(s, where), kThreads, where, heads, frequencies,
               op.backward ? -1.0 : 1.0, rows_of<S>(op.qkv));
      });
    });
  }
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
