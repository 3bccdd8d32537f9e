// SPDX-License-Identifier: Apache-2.0
// The GPU catalogue: what devices are called, their memory and their dense peaks, each with its
// source (yamls/gpus.yaml; docs/formats.md, "GPUs").
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/tree.h"
#include "lib/hardware/gpu.h"
#include "lib/model/settings.h"

namespace tessera::hardware {

// Error(input) with the place of the fault.
Catalogue parse_catalogue(const Value& value);
Catalogue built_in_catalogue();

// Adds the entries of `more`; one of a known name takes its place, so that a user's figure wins.
void add(Catalogue& catalogue, const Catalogue& more);

// The built-in catalogue, and the file's entries if `path` is not empty.
Catalogue load_catalogue(const std::string& path);

// nullptr: no such entry.
const Gpu* find_by_name(const Catalogue& catalogue, std::string_view name);

// Entry of the device that the driver calls so, nullptr if none matches. Never a guess: a name that
// two entries match is Error(input).
const Gpu* match_driver_name(const Catalogue& catalogue, const std::string& device_name);

// What a plan goes without for a GPU that has no entry, a sentence with the entries that may be
// meant; nothing if it has one, and for "cpu".
std::optional<std::string> unknown_gpu(const Catalogue& catalogue, std::string_view gpu);

// A dense peak per device with its source, or why there is none.
struct PeakOrReason {
  std::optional<double> tflops;
  std::string text;  // "catalogue: NVIDIA H100 ..., amp_bf16" or "GPU 'x' is not in the catalogue"
};
PeakOrReason peak(const Catalogue& catalogue, std::string_view gpu, Precision precision);

// Why the GPU cannot compute in this precision, if the catalogue knows that.
std::optional<std::string> incapable(const Catalogue& catalogue, std::string_view gpu,
                                     Precision precision);

}  // namespace tessera::hardware
