// SPDX-License-Identifier: Apache-2.0
// How a model is trained, in the words of flags, sweep files, points, records and columns.
#pragma once

#include <cstdint>

#include "lib/base/names.h"

namespace tessera {

// The precision of the matrix products; docs/precision.md has the dtype of every tensor. "amp_x" is
// PyTorch's and Composer's name for 32-bit master weights with products in x. tf32: all in f32, but
// products may round their inputs to TF32 (GPUs from Ampere on).
enum class Precision : std::uint8_t { fp32, tf32, amp_bf16, amp_fp16, amp_fp8 };
// Whether everything is stored in f32, so that nothing is cast for compute.
constexpr bool is_f32(Precision precision) {
  return precision == Precision::fp32 || precision == Precision::tf32;
}

// What is gathered and reduced in which dtype (Composer's names): DEFAULT gathers low, reduces f32;
// PURE both low; FULL both f32.
enum class MixedPrecision : std::uint8_t { default_, pure, full };

// PyTorch FSDP's names.
enum class Sharding : std::uint8_t { full_shard, shard_grad_op, no_shard, hybrid_shard };

// What of the forward pass is computed again in the backward pass.
enum class Checkpointing : std::uint8_t { none, selective, full };

// Which attention runs; automatic is the fastest exact one that the device has.
enum class Attention : std::uint8_t { automatic };

template <>
struct Names<Precision> {
  static constexpr std::pair<Precision, std::string_view> table[] = {
      {Precision::fp32, "fp32"},
      {Precision::tf32, "tf32"},
      {Precision::amp_bf16, "amp_bf16"},
      {Precision::amp_fp16, "amp_fp16"},
      {Precision::amp_fp8, "amp_fp8"}};
};
template <>
struct Names<MixedPrecision> {
  static constexpr std::pair<MixedPrecision, std::string_view> table[] = {
      {MixedPrecision::default_, "DEFAULT"},
      {MixedPrecision::pure, "PURE"},
      {MixedPrecision::full, "FULL"}};
};
template <>
struct Names<Sharding> {
  static constexpr std::pair<Sharding, std::string_view> table[] = {
      {Sharding::full_shard, "FULL_SHARD"},
      {Sharding::shard_grad_op, "SHARD_GRAD_OP"},
      {Sharding::no_shard, "NO_SHARD"},
      {Sharding::hybrid_shard, "HYBRID_SHARD"}};
};
template <>
struct Names<Checkpointing> {
  static constexpr std::pair<Checkpointing, std::string_view> table[] = {
      {Checkpointing::none, "none"},
      {Checkpointing::selective, "selective"},
      {Checkpointing::full, "full"}};
};
template <>
struct Names<Attention> {
  static constexpr std::pair<Attention, std::string_view> table[] = {
      {Attention::automatic, "auto"}};
};

}  // namespace tessera
