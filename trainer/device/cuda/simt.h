// SPDX-License-Identifier: Apache-2.0
// The vocabulary that our own kernels are written in: all of CUDA that they may use. Each verb
// names the intrinsic or the PTX instruction that it stands for. The same source is compiled twice:
// by nvcc, in namespace gpu, and by the C++ compiler, in namespace emulated, where emulator.h runs
// the threads of a block on the CPU. So CI runs the very kernels that a GPU runs, in any order of
// threads and under the sanitizers.
//
// A kernel is a function
//
//   SIMT_KERNEL(kThreads) void name(float* y, const float* x, std::int64_t n) { ... }
//
// of a one-dimensional block of at most kThreads threads, a multiple of the warp size, in a grid of
// blocks (x, y). SIMT_KERNEL(kThreads, kOccupancy) are the launch bounds: kOccupancy blocks per
// multiprocessor are enough, so the compiler may spend registers on more loads in flight, which it
// would otherwise serialise to save registers. A kernel may use thread(), block(), block_y(),
// blocks(), blocks_y(), SIMT_SHARED, dynamic_shared(), sync(), shuffle_xor(), vectorized 16-byte
// loads and stores, asynchronous copies to shared memory, the approximations below and <cmath>.
// Every thread of a block must reach every sync(), every lane of a warp every shuffle_xor(). There
// are no atomics: sums have one order, so their bits are the same in every run.
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/device/cuda/launch.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>

#define TESSERA_SIMT gpu
// Kernels are not static: a template's kernel is one function in the whole program.
#define SIMT_KERNEL(...) __global__ __launch_bounds__(__VA_ARGS__)
#define SIMT_FUNCTION __device__ __forceinline__
#define SIMT_UNROLL _Pragma("unroll")
#define SIMT_SHARED(type, name, count) __shared__ type name[count]
#else
#include <cstring>

#include "trainer/device/cuda/emulator/emulator.h"

#define TESSERA_SIMT emulated
#define SIMT_KERNEL(...)
#define SIMT_FUNCTION inline
#define SIMT_UNROLL
// Static shared memory of the block, filled with NaN before any thread reaches the declaration.
// NOLINTBEGIN(bugprone-macro-parentheses): a type and a name, not values.
#define SIMT_SHARED(type, name, count)         \
  static const char name##_place = 0;          \
  auto& name = *static_cast<type(*)[(count)]>( \
      ::tessera::trainer::cuda::emulator::shared_memory(&name##_place, sizeof(type[(count)])))
// NOLINTEND(bugprone-macro-parentheses)
#endif

namespace tessera::trainer::cuda::TESSERA_SIMT {

inline constexpr int kWarpSize = 32;

// A bf16 number as it is stored: __nv_bfloat16.
struct alignas(2) Bf16 {
  std::uint16_t bits;
};

#if defined(__CUDACC__)

// threadIdx.x
SIMT_FUNCTION int thread() {
  return static_cast<int>(threadIdx.x);
}
// blockIdx.x, blockIdx.y and gridDim.x, gridDim.y
SIMT_FUNCTION std::int64_t block() {
  return blockIdx.x;
}
SIMT_FUNCTION std::int64_t block_y() {
  return blockIdx.y;
}
SIMT_FUNCTION std::int64_t blocks() {
  return gridDim.x;
}
SIMT_FUNCTION std::int64_t blocks_y() {
  return gridDim.y;
}
// __syncthreads(): what the block's threads wrote before it, all of them see after it.
SIMT_FUNCTION void sync() {
  __syncthreads();
}
// __shfl_xor_sync of the whole warp: `value` of the lane whose number differs in these bits. It is
// no memory fence.
template <class T>
SIMT_FUNCTION T shuffle_xor(T value, int lane_bits) {
  return __shfl_xor_sync(0xffffffffU, value, lane_bits);
}

SIMT_FUNCTION float to_float(Bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
// __float2bfloat16_rn: rounds to nearest even.
SIMT_FUNCTION Bf16 to_bf16(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

// Four 32-bit words, CUDA's uint4: the unit of vectorized loads and stores.
struct alignas(16) Vec4 {
  std::uint32_t at[4];
};
// A vectorized load of 16 bytes: ld.v4.b32.
SIMT_FUNCTION Vec4 load_vec4(const void* from) {
  const uint4 w = *static_cast<const uint4*>(from);
  return {{w.x, w.y, w.z, w.w}};
}
// A vectorized store of 16 bytes to global memory, and to no other: st.global.v4.b32. It is written
// in PTX because the compiler sometimes splits a uint4 into four stores.
SIMT_FUNCTION void store_vec4(void* to, const Vec4& w) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(w.at[0]), "r"(w.at[1]), "r"(w.at[2]),
                 "r"(w.at[3])
               : "memory");
}
// Dynamic shared memory, extern __shared__: the Grid's dynamic_shared_bytes of the block, aligned
// to 16 bytes.
SIMT_FUNCTION Vec4* dynamic_shared() {
  extern __shared__ Vec4 tessera_dynamic_shared[];
  return tessera_dynamic_shared;
}
// cp.async.cg: copies 16 bytes from global to shared memory without a register and without waiting,
// so only shared memory bounds the bytes in flight. cp_async_commit() is cp.async.commit_group: it
// closes the group of the thread's copies since the last commit. cp_async_wait<n>() is
// cp.async.wait_group n: it returns when all of the thread's groups but the last n have arrived,
// for this thread alone. Neither source nor destination may change until then, and a thread waits
// for all its copies before it ends.
SIMT_FUNCTION void cp_async(Vec4* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from))
               : "memory");
}
SIMT_FUNCTION void cp_async_commit() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}
template <int kGroups>
SIMT_FUNCTION void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroups) : "memory");
}
SIMT_FUNCTION float as_float(std::uint32_t bits) {
  return __uint_as_float(bits);
}
SIMT_FUNCTION std::uint32_t as_bits(float x) {
  return __float_as_uint(x);
}
// __umulhi
SIMT_FUNCTION std::uint32_t multiply_high(std::uint32_t a, std::uint32_t b) {
  return __umulhi(a, b);
}
// Approximations to 2 units in the last place: a few instructions without a branch, where <cmath>
// takes ten. ex2.approx.ftz and rcp.approx.ftz flush subnormal arguments and results to 0.
SIMT_FUNCTION float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SIMT_FUNCTION float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// __fdividef: a / b for |b| up to 2^126.
SIMT_FUNCTION float divide_approx(float a, float b) {
  return __fdividef(a, b);
}
// sqrt.approx.f32
SIMT_FUNCTION float sqrt_approx(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// kernel<<<grid, threads>>>(arguments...) on the stream of `where`. Error(failed) names the kernel.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, int threads,
            const Launch& where, Arguments... arguments) {
  if (grid.dynamic_shared_bytes > 0) {
    // The block may take more than 48 KiB, and the carve-out gives all of a multiprocessor's L1
    // cache and shared memory to shared memory.
    const auto set = [&](cudaFuncAttribute which, int value) {
      check_launch(name, static_cast<int>(cudaFuncSetAttribute(
                             reinterpret_cast<const void*>(kernel), which, value)));
    };
    set(cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.dynamic_shared_bytes));
    set(cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  }
  if (where.load_only) {
    cudaFuncAttributes attributes;
    check_launch(name, static_cast<int>(cudaFuncGetAttributes(
                           &attributes, reinterpret_cast<const void*>(kernel))));
    return;
  }
  kernel<<<dim3(grid.x, grid.y), dim3(static_cast<unsigned>(threads)), grid.dynamic_shared_bytes,
           static_cast<cudaStream_t>(where.stream)>>>(static_cast<Parameters>(arguments)...);
  check_launch(name, static_cast<int>(cudaGetLastError()));
}

#else

inline int thread() {
  return emulator::current().thread;
}
inline std::int64_t block() {
  return emulator::current().block_x;
}
inline std::int64_t block_y() {
  return emulator::current().block_y;
}
inline std::int64_t blocks() {
  return emulator::current().blocks_x;
}
inline std::int64_t blocks_y() {
  return emulator::current().blocks_y;
}
inline void sync(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::sync({file, line});
}
template <class T>
T shuffle_xor(T value, int lane_bits, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = emulator::shuffle_xor(bits, lane_bits, {file, line});
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline float as_float(std::uint32_t bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline std::uint32_t as_bits(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
}
inline float to_float(Bf16 x) {
  return as_float(std::uint32_t{x.bits} << 16);
}
inline Bf16 to_bf16(float x) {
  const std::uint32_t bits = as_bits(x);
  if (x != x) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

struct alignas(16) [[gnu::may_alias]] Vec4 {
  std::uint32_t at[4];
};
inline Vec4 load_vec4(const void* from, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  emulator::check_aligned(from, {file, line});
  return *static_cast<const Vec4*>(from);
}
inline void store_vec4(void* to, const Vec4& w, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  emulator::check_aligned(to, {file, line});
  emulator::check_global(to, {file, line});
  *static_cast<Vec4*>(to) = w;
}
inline Vec4* dynamic_shared() {
  return static_cast<Vec4*>(emulator::dynamic_shared_memory());
}
inline void cp_async(Vec4* to, const void* from, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  emulator::check_aligned(to, {file, line});
  emulator::check_aligned(from, {file, line});
  emulator::cp_async(to, from, {file, line});
}
inline void cp_async_commit() {
  emulator::cp_async_commit();
}
// Here the bytes move, as late as they may, so a kernel that forgets to wait finds the old bytes.
template <int kGroups>
void cp_async_wait() {
  while (const emulator::Copy* const due = emulator::due_copy(kGroups))
    *static_cast<Vec4*>(due->to) = *static_cast<const Vec4*>(due->from);
}
inline std::uint32_t multiply_high(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>((std::uint64_t{a} * b) >> 32);
}
inline float flush_to_zero(float x) {
  return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x;
}
inline float exp2_approx(float x) {
  return flush_to_zero(std::exp2(flush_to_zero(x)));
}
inline float reciprocal_approx(float x) {
  return flush_to_zero(1 / flush_to_zero(x));
}
inline float divide_approx(float a, float b) {
  return a / b;
}
inline float sqrt_approx(float x) {
  return std::sqrt(x);
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, int threads,
            const Launch& where, Arguments... arguments) {
  if (where.load_only) return;
  emulator::run_grid(name, grid, threads, where.max_shared_bytes,
                     [&] { kernel(static_cast<Parameters>(arguments)...); });
}

#endif

// threadIdx.x modulo and divided by the warp size
SIMT_FUNCTION int lane() {
  return thread() % kWarpSize;
}
SIMT_FUNCTION int warp() {
  return thread() / kWarpSize;
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
