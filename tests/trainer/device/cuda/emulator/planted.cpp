// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/device/cuda/emulator/planted.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "trainer/device/cuda/kernel/block.h"

namespace tessera::trainer::test {
namespace {

// Kernels use these namespaces as real ones do.
using namespace cuda;            // NOLINT(google-build-using-namespace)
using namespace cuda::emulated;  // NOLINT(google-build-using-namespace)

constexpr int kThreads = kPlantedFloats;

void rotated(float* x) {
  SIMT_SHARED(float, all, kThreads);
  all[thread()] = x[thread()];
  sync();
  x[thread()] = all[(thread() + 37) % kThreads];
}

void summed(float* x) {
  for (int turn = 0; turn < 3; ++turn)
    x[thread()] = block_reduce<kThreads>(x[thread()], 0.0F, Sum{}) / kThreads;
}

// Warps may diverge between syncs, and may end early after the last.
void by_warps(float* x) {
  SIMT_SHARED(float, all, kThreads);
  float value = x[thread()];
  if (warp() == 1) value = warp_reduce(value, Sum{});
  all[thread()] = value;
  sync();
  if (warp() > 3) return;
  x[thread()] += warp_reduce(all[kThreads - 1 - thread()], Sum{});
}

void unsynced_read(float* x) {
  SIMT_SHARED(float, all, kThreads);
  all[thread()] = x[thread()];
  sync();
  const float other = all[thread() ^ 1];
  // A sync() is missing here.
  all[thread()] = 2 * other;
  sync();
  x[thread()] = all[thread()];
}

// Half a warp reads what the other half wrote in the instruction before: a shuffle is no memory
// fence.
void shuffle_as_fence(float* x) {
  SIMT_SHARED(float, all, kThreads);
  all[thread()] = x[thread()];
  const float other = shuffle_xor(x[thread()], 1);
  x[thread()] = all[thread() ^ 1] + other;
}

void same_address(float* x) {
  x[thread() / 2] = static_cast<float>(thread());
}

void two_syncs(float* x) {
  if (thread() < 64) {
    x[thread()] += 1;
    sync();
  } else {
    sync();
  }
}

void thread_without_sync(float* x) {
  if (thread() == 77) return;
  sync();
  x[thread()] += 1;
}

void two_shuffles(float* x) {
  if (lane() < 16) {
    x[thread()] = shuffle_xor(x[thread()], 1);
  } else {
    x[thread()] = shuffle_xor(x[thread()], 1);
  }
}

void two_partners(float* x) {
  x[thread()] = shuffle_xor(x[thread()], lane() < 16 ? 1 : 2);
}

void lane_without_shuffle(float* x) {
  if (thread() == 33) return;
  x[thread()] = shuffle_xor(x[thread()], 1);
}

void shuffle_beyond_warp(float* x) {
  x[thread()] = shuffle_xor(x[thread()], kWarpSize);
}

void misaligned_load(float* x) {
  x[thread()] = as_float(load_vec4(x + thread() / 8 * 4 + (thread() == 9 ? 1 : 0)).at[0]);
}

void misaligned_store(float* x) {
  if (thread() == 3) store_vec4(x + 2, Vec4{});
}

void global_store_to_shared(float* x) {
  SIMT_SHARED(Vec4, all, kThreads);
  store_vec4(&all[thread()], Vec4{});
  sync();
  x[thread()] = as_float(all[thread()].at[0]);
}

void copy_to_global(float* x) {
  if (thread() == 4) cp_async(reinterpret_cast<Vec4*>(x), x + 4);
  cp_async_commit();
  cp_async_wait<0>();
}

void copy_from_shared(float* /*x*/) {
  if (thread() == 5) cp_async(dynamic_shared(), dynamic_shared() + 1);
  cp_async_commit();
  cp_async_wait<0>();
}

void unwritten_shared(float* x) {
  SIMT_SHARED(float, all, kThreads);
  if (thread() != 5) all[thread()] = x[thread()];
  sync();
  x[thread()] = all[thread()];
}

void shared_out_of_bounds(float* x) {
  SIMT_SHARED(float, all, kThreads);
  all[thread() + 1] = x[thread()];
  sync();
  x[thread()] = all[thread()];
}

void too_much_shared(float* x) {
  SIMT_SHARED(float, first, 8192);
  SIMT_SHARED(float, second, 8192);
  first[thread()] = x[thread()];
  second[thread()] = x[thread()];
}

// Copies the first half of the block's numbers in one group and the second half in another; each
// copying thread copies four numbers of each half. kLeft groups may be in flight when it reads
// them.
template <int kLeft>
void copied(float* x) {
  constexpr int kHalf = kThreads / 2;
  Vec4* const words = dynamic_shared();
  if (thread() < kHalf / 4) cp_async(words + thread(), x + thread() * 4);
  cp_async_commit();
  if (thread() < kHalf / 4) cp_async(words + kHalf / 4 + thread(), x + kHalf + thread() * 4);
  cp_async_commit();
  cp_async_wait<kLeft>();
  sync();
  const int from = kThreads - 1 - thread();
  const float value = as_float(words[from / 4].at[from % 4]);
  sync();
  cp_async_wait<0>();
  x[thread()] = value;
}

// The group is not committed, so no wait covers it.
void open_group(float* x) {
  cp_async(dynamic_shared() + thread() / 4, x + thread() / 4 * 4);
  cp_async_wait<0>();
}

void copies_at_end(float* x) {
  if (thread() == 7) cp_async(dynamic_shared(), x);
  cp_async_commit();
}

void misaligned_copy(float* x) {
  if (thread() == 5) cp_async(dynamic_shared(), x + 2);
  cp_async_commit();
  cp_async_wait<0>();
}

void many_copies(float* x) {
  for (int i = 0; i < 65; ++i) cp_async(dynamic_shared(), x);
}

// Another thread's copies are visible only after a sync().
void unsynced_copy(float* x) {
  Vec4* const words = dynamic_shared();
  if (thread() % 4 == 0) cp_async(words + thread() / 4, x + thread());
  cp_async_commit();
  cp_async_wait<0>();
  const float value = as_float(words[thread() / 4].at[thread() % 4]);
  sync();
  x[thread()] = value;
}

void copy_out_of_bounds(float* x) {
  cp_async(dynamic_shared() + thread(), x);
  cp_async_commit();
  cp_async_wait<0>();
}

void nothing(float* /*x*/) {}

template <void (*kKernel)(float*), int kBlock = kThreads, unsigned kGridX = 1, unsigned kGridY = 1>
void run(float* x) {
  launch("planted", kKernel, Grid{kGridX, kGridY}, kBlock, {}, x);
}

// Launches with dynamic shared memory.
template <void (*kKernel)(float*), unsigned kBytes = kThreads * sizeof(float),
          int kThere = 48 << 10>
void run_with(float* x) {
  launch("planted", kKernel, Grid{1, 1, kBytes}, kThreads, {.max_shared_bytes = kThere}, x);
}

constexpr Planted kPlanted[] = {
    {"rotated", run<rotated>},
    {"summed", run<summed>},
    {"by warps", run<by_warps>},
    {"unsynced read", run<unsynced_read>},
    {"shuffle as fence", run<shuffle_as_fence>},
    {"same address", run<same_address>},
    {"two syncs", run<two_syncs>},
    {"thread without sync", run<thread_without_sync>},
    {"two shuffles", run<two_shuffles>},
    {"two partners", run<two_partners>},
    {"lane without shuffle", run<lane_without_shuffle>},
    {"shuffle beyond warp", run<shuffle_beyond_warp>},
    {"misaligned load", run<misaligned_load>},
    {"misaligned store", run<misaligned_store>},
    {"global store to shared", run<global_store_to_shared>},
    {"copy to global", run_with<copy_to_global>},
    {"copy from shared", run_with<copy_from_shared>},
    {"unwritten shared", run<unwritten_shared>},
    {"shared out of bounds", run<shared_out_of_bounds>},
    {"too much shared", run<too_much_shared>},
    {"block of 48", run<nothing, 48>},
    {"block of 1056", run<nothing, 1056>},
    {"empty grid", run<nothing, kThreads, 0>},
    {"grid too high", run<nothing, 32, 1, 65536>},
    {"copied", run_with<copied<0>>},
    {"copied in part", run_with<copied<1>>},
    {"copied without waiting", run_with<copied<2>>},
    {"open group", run_with<open_group>},
    {"copies at end", run_with<copies_at_end>},
    {"misaligned copy", run_with<misaligned_copy>},
    {"many copies", run_with<many_copies>},
    {"unsynced copy", run_with<unsynced_copy>},
    {"copy out of bounds", run_with<copy_out_of_bounds>},
    {"much shared", run_with<nothing, 200 << 10, 227 << 10>},
    {"too much shared by launch", run_with<nothing, (48 << 10) + 16>},
    {"too much shared together", run_with<summed, 48 << 10>},
    {"too much shared for any", run_with<nothing, 16, 229 << 10>},
};

}  // namespace

std::span<const Planted> planted() {
  return kPlanted;
}

const Planted& planted(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kPlanted), std::end(kPlanted),
                                         [&](const Planted& p) { return p.name == name; });
  if (found == std::end(kPlanted)) throw std::logic_error(std::string(name));
  return *found;
}

}  // namespace tessera::trainer::test
