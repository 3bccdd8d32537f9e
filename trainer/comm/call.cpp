// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lib/base/error.h"

namespace tessera::trainer::comm {
namespace {

[[noreturn]] void fail(Collective collective, const std::string& what) {
  throw Error(ExitCode::internal, name_of(collective), what);
}

void need_flat(Collective collective, const char* name, const Tensor& t) {
  if (!t) fail(collective, fmt::format("{} is missing", name));
  const bool has_dtype = t.dtype == DType::f32 || t.dtype == DType::bf16 ||
                         (t.dtype == DType::f64 && collective == Collective::all_reduce_sum);
  if (!has_dtype) {
    fail(collective, fmt::format("{} is {}, not one of f32, bf16{}", name, to_text(t.dtype),
                                 collective == Collective::all_reduce_sum ? ", f64" : ""));
  }
  if (t.rows != 1 || t.cols < 1 ||
      t.cols > std::numeric_limits<std::int64_t>::max() / bytes_of(t.dtype)) {
    fail(collective, fmt::format("{} is [{}, {}], not [1, n]", name, t.rows, t.cols));
  }
  if (reinterpret_cast<std::uintptr_t>(t.data) % static_cast<std::size_t>(bytes_of(t.dtype)) != 0) {
    fail(collective, fmt::format("{} is not aligned to its dtype", name));
  }
}

// A shard is either outside of full or exactly this rank's slice of it.
void need_shard_of(Collective collective, int rank, int size, const Tensor& shard,
                   const Tensor& full) {
  need_flat(collective, "shard", shard);
  need_flat(collective, "full", full);
  if (shard.dtype != full.dtype) {
    fail(collective,
         fmt::format("shard is {}, full is {}", to_text(shard.dtype), to_text(full.dtype)));
  }
  if (full.cols % size != 0 || full.cols / size != shard.cols) {
    fail(collective,
         fmt::format("full has {} elements, not {} shards of {}", full.cols, size, shard.cols));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(shard.data);
  const auto full_begin = reinterpret_cast<std::uintptr_t>(full.data);
  const auto bytes = static_cast<std::uintptr_t>(shard.cols * bytes_of(shard.dtype));
  const auto full_bytes = bytes * static_cast<std::uintptr_t>(size);
  const bool apart = begin + bytes <= full_begin || full_begin + full_bytes <= begin;
  if (!apart && begin != full_begin + bytes * static_cast<std::uintptr_t>(rank)) {
    fail(collective, fmt::format("shard overlaps full elsewhere than in slice {}", rank));
  }
}

}  // namespace

Call all_gather_call(int rank, int size, const Tensor& shard, const Tensor& full) {
  need_shard_of(Collective::all_gather, rank, size, shard, full);
  return {Collective::all_gather,
          shard.dtype,
          shard.cols,
          static_cast<const std::byte*>(shard.data),
          static_cast<std::byte*>(full.data),
          {}};
}

Call reduce_scatter_sum_call(int rank, int size, const Tensor& full, const Tensor& shard) {
  need_shard_of(Collective::reduce_scatter_sum, rank, size, shard, full);
  return {Collective::reduce_scatter_sum,
          shard.dtype,
          shard.cols,
          static_cast<const std::byte*>(full.data),
          static_cast<std::byte*>(shard.data),
          {}};
}

Call all_reduce_sum_call(const Tensor& tensor) {
  need_flat(Collective::all_reduce_sum, "tensor", tensor);
  auto* data = static_cast<std::byte*>(tensor.data);
  return {Collective::all_reduce_sum, tensor.dtype, tensor.cols, data, data, {}};
}

// prepare compares sizes of registered memory only: addresses differ from rank to rank.
bool is_same(const Call& a, const Call& b) {
  return a.collective == b.collective && a.dtype == b.dtype && a.elements == b.elements &&
         std::ranges::equal(
             a.registered, b.registered, {},
             [](std::span<std::byte> memory) { return memory.size(); },
             [](std::span<std::byte> memory) { return memory.size(); });
}

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::prepare:
      return "prepare";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter_sum:
      return "reduce_scatter_sum";
    case Collective::all_reduce_sum:
      return "all_reduce_sum";
  }
  return "?";
}

std::string describe(const Call& call) {
  if (call.collective != Collective::prepare) {
    return fmt::format("{} of {} {}{}", name_of(call.collective), call.elements,
                       to_text(call.dtype),
                       call.collective == Collective::all_reduce_sum ? "" : " a rank");
  }
  std::string sizes;
  for (const std::span<std::byte> memory : call.registered) {
    sizes += fmt::format("{}{}", sizes.empty() ? "" : " + ", memory.size());
  }
  return fmt::format("prepare with {} bytes", sizes.empty() ? "0" : sizes);
}

std::string calls_text(std::span<const std::optional<Call>> calls) {
  std::string text;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    if (!calls[rank]) continue;
    const auto same = [&](const std::optional<Call>& other) {
      return other && is_same(*calls[rank], *other);
    };
    if (std::ranges::any_of(calls.first(rank), same)) continue;  // listed with that one
    std::string ranks;
    for (std::size_t other = rank; other < calls.size(); ++other) {
      if (same(calls[other])) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", other);
    }
    const bool several = ranks.find(',') != std::string::npos;
    text += fmt::format("; {} {} in {}", several ? "ranks" : "rank", ranks, describe(*calls[rank]));
  }
  return text;
}

}  // namespace tessera::trainer::comm
