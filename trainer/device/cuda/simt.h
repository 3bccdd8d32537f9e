// The vocabulary that our own kernels are written in, and all that they may use of CUDA. The same
// source is compiled twice: by nvcc, in namespace gpu, and by the C++ compiler, in namespace
// emulated, where emulator.h runs the threads of a block on the CPU. So CI runs the very kernels
// that a GPU runs, in any order of threads and under the sanitizers.
//
// A kernel is a function
//
//   SIMT_KERNEL(kThreads) void name(float* y, const float* x, std::int64_t n) { ... }
//
// of a one-dimensional block of at most kThreads threads, a multiple of the warp, in a grid of
// blocks (x, y). SIMT_KERNEL(kThreads, kBlocks) says that it is enough for a multiprocessor to hold
// kBlocks of them: the compiler then takes registers for loads that are on their way, which it else
// issues one after another to save them. A kernel may use thread(), block(), block_y(), blocks(),
// blocks_y(), SIMT_SHARED, dynamic_shared(), sync(), shuffle_xor(), 16-byte loads, stores and
// copies to shared memory, the approximations below and <cmath>. Every thread of a block must come
// to every sync(), every lane of a warp to every shuffle_xor(). No atomics: sums have one order, so
// their bits are the same in every run.
#pragma once

#include <cmath>
#include <cstdint>

#include "trainer/device/cuda/launch.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>

#define TESSERA_SIMT gpu
// Not static: a template's kernel is one function in all of a program.
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
// Memory of the block, filled with NaN before any thread comes here.
// NOLINTBEGIN(bugprone-macro-parentheses): a type and a name, not values.
#define SIMT_SHARED(type, name, count)         \
  static const char name##_place = 0;          \
  auto& name = *static_cast<type(*)[(count)]>( \
      ::tessera::trainer::cuda::emulator::shared_memory(&name##_place, sizeof(type[(count)])))
// NOLINTEND(bugprone-macro-parentheses)
#endif

namespace tessera::trainer::cuda::TESSERA_SIMT {

inline constexpr int kWarpSize = 32;

// bf16 as it is stored.
struct alignas(2) Bf16 {
  std::uint16_t bits;
};

#if defined(__CUDACC__)

SIMT_FUNCTION int thread() {
  return static_cast<int>(threadIdx.x);
}
// Block (x, y) of how many in each direction.
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
// What threads of the block wrote before it, all of them see after it.
SIMT_FUNCTION void sync() {
  __syncthreads();
}
// `value` of the lane whose number differs in these bits. No fence for memory.
template <class T>
SIMT_FUNCTION T shuffle_xor(T value, int lane_bits) {
  return __shfl_xor_sync(0xffffffffU, value, lane_bits);
}

SIMT_FUNCTION float to_float(Bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
// Rounded to nearest even.
SIMT_FUNCTION Bf16 to_bf16(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

struct alignas(16) Vec4 {
  std::uint32_t at[4];
};
SIMT_FUNCTION Vec4 load_vec4(const void* from) {
  const uint4 w = *static_cast<const uint4*>(from);
  return {{w.x, w.y, w.z, w.w}};
}
// To global memory, and to no other. In PTX, as the compiler makes four stores of a uint4 now and
// then.
SIMT_FUNCTION void store_vec4(void* to, const Vec4& w) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(w.at[0]), "r"(w.at[1]), "r"(w.at[2]),
                 "r"(w.at[3])
               : "memory");
}
// The Grid's shared_bytes of the block, at a multiple of 16.
SIMT_FUNCTION Vec4* dynamic_shared() {
  extern __shared__ Vec4 tessera_dynamic_shared[];
  return tessera_dynamic_shared;
}
// 16 bytes from global to shared memory, without a register and without waiting: bytes on their way
// are bounded by shared memory alone. A thread's copies since its last cp_async_commit() are a
// group; cp_async_wait<n>() returns when all of its groups but the last n are there, for this
// thread alone. Neither source nor target may change until then, and a thread waits for all before
// it ends.
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
SIMT_FUNCTION std::uint32_t multiply_high(std::uint32_t a, std::uint32_t b) {
  return __umulhi(a, b);
}
// To 2 units in the last place, in few instructions without a branch, where <cmath>'s take ten.
// 2^x and 1 / x: arguments and results that are not normal are 0.
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
// a / b for |b| up to 2^126.
SIMT_FUNCTION float divide_approx(float a, float b) {
  return __fdividef(a, b);
}
SIMT_FUNCTION float sqrt_approx(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Kernels on a stream: kernel(arguments...) by `threads` of each block of the grid.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, int threads,
            const Launch& where, Arguments... arguments) {
  if (grid.dynamic_shared_bytes > 0) {
    // Of what a multiprocessor has for both, all to shared memory and none to the first cache.
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
// Here the bytes move, as late as they may: who does not wait for them finds what was there before.
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

SIMT_FUNCTION int lane() {
  return thread() % kWarpSize;
}
SIMT_FUNCTION int warp() {
  return thread() / kWarpSize;
}

}  // namespace tessera::trainer::cuda::TESSERA_SIMT
