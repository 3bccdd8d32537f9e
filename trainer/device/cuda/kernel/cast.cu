// Casts, with or without an accumulation: one pack a thread and turn.
#include "trainer/device/cuda/kernel/elements.h"

namespace tessera::trainer::cuda::TESSERA_SIMT {
namespace {

constexpr int kThreads = 256;

template <bool kPacked, bool kAccumulate, class S, class D>
SIMT_KERNEL(kThreads)
void cast(Packs packs, Rows<const S> src, Rows<D> dst) {
  packs.each<kThreads>([&](std::int64_t row, std::int64_t col, std::int64_t left) {
    float value[kPack];
    load<kPacked>(src.row(row) + col, left, value);
    if constexpr (kAccumulate) {
      float old[kPack];
      load<kPacked>(dst.row(row) + col, left, old);
      SIMT_UNROLL
      for (int i = 0; i < kPack; ++i) value[i] += old[i];
    }
    store<kPacked>(dst.row(row) + col, left, value);
  });
}

template <bool kPacked, bool kAccumulate, class S, class D>
void launch_cast(const Cast& op, const Launch& where) {
  const Packs packs = packs_of({&op.src, &op.dst});
  launch("cast", cast<kPacked, kAccumulate, S, D>, packs.grid(kThreads, where), kThreads, where,
         packs, rows_of<const S>(op.src), rows_of<D>(op.dst));
}

}  // namespace

void run(const Cast& op, const Launch& where) {
  with_packing(is_packed({&op.src, &op.dst}), [&]<bool kPacked>() {
    with_storage(op.src.dtype, [&]<class S>() {
      with_storage(op.dst.dtype, [&]<class D>() {
        if (op.accumulate) {
          launch_cast<kPacked, true, S, D>(op, where);
        } else {
          launch_cast<kPacked, false, S, D>(op, where);
        }
      });
    });
  });
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
