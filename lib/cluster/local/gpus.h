// SPDX-License-Identifier: Apache-2.0
// Which of this machine's GPUs a run takes: CUDA_VISIBLE_DEVICES of its process. Pure, but for
// gpus_of_process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cluster {

constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";

// What runs may take, as CUDA names it: the first `per_node` of what `visible` lists (numbers, or
// names that begin with GPU- or MIG-; CUDA ends the list at what begins with a dash), without it
// the numbers from 0 on.
std::vector<std::string> gpus_to_take(const std::optional<std::string>& visible,
                                      std::int64_t per_node);

// `count` of `gpus` for one more run, those first that fewest of `taken` (an entry a run) are.
// Empty where there are not so many.
std::vector<std::string> choose_gpus(const std::vector<std::string>& gpus,
                                     const std::vector<std::string>& taken, std::int64_t count);

// "0,2" of what `list` has.
std::vector<std::string> split_gpus(std::string_view list);

// What a process of this machine was started with; empty if nothing, or it cannot be read.
std::vector<std::string> gpus_of_process(int pid);

}  // namespace tessera::cluster
