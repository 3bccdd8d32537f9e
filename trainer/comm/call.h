// SPDX-License-Identifier: Apache-2.0
// A collective call as a value: what a communicator checks and what ranks compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trainer/device/ops.h"

namespace tessera::trainer::comm {

enum class Collective : std::uint8_t { prepare, all_gather, reduce_scatter_sum, all_reduce_sum };

struct Call {
  Collective collective = Collective::prepare;
  DType dtype = DType::f32;
  std::int64_t elements = 0;  // of one shard; all_reduce_sum: of the tensor
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::span<const std::span<std::byte>> registered;  // prepare's memory

  std::int64_t bytes() const { return elements * bytes_of(dtype); }
};

// Returns the call after checking its tensors: Error(internal) unless they are as communicator.h
// promises for rank `rank` of `size`.
Call all_gather_call(int rank, int size, const Tensor& shard, const Tensor& full);
Call reduce_scatter_sum_call(int rank, int size, const Tensor& full, const Tensor& shard);
Call all_reduce_sum_call(const Tensor& tensor);

// Returns whether two ranks with these calls do the same.
bool is_same(const Call& a, const Call& b);

const char* name_of(Collective collective);
std::string describe(const Call& call);  // "all_gather of 128 f32 a rank"

// Lists the calls that are there, by rank, equal ones together: "; ranks 0, 2 in all_gather of 128
// f32 a rank; rank 1 in ...".
std::string calls_text(std::span<const std::optional<Call>> calls);

}  // namespace tessera::trainer::comm
