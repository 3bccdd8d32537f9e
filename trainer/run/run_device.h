// SPDX-License-Identifier: Apache-2.0
// The device of a run: this machine's CPU with some threads, or one of its GPUs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lib/runlog/footer.h"
#include "trainer/device/gpu.h"
#include "trainer/run/records.h"

namespace tessera::trainer {

// Opens the GPU that an accepted specification asks for; null if it asks for a CPU.
// Error(wrong_device) if the machine has another one than expected.
std::unique_ptr<Gpu> open_run_gpu(const sweep::RunSpec& spec);

// Returns the bytes that a plan leaves free on a GPU: as the specification says, otherwise 2 GiB.
std::int64_t reserve_of(const sweep::RunSpec& spec);

// Returns the bytes that a plan may take of the GPU's memory or, without a GPU, of a machine's; 0:
// unknown.
std::int64_t run_capacity(const sweep::RunSpec& spec, const Gpu* gpu, std::int64_t machine_bytes);

// Returns the specification's peak (none: collect looks one up by the driver's name), and what
// large GEMMs reach, measured for about a second.
MeasuredPeak gpu_peak(const sweep::RunSpec& spec, Gpu& gpu);

// Adds clock, power, temperature, throttling and other processes of the measured steps.
void add(const GpuWatch& seen, runlog::Footer& footer);

// Warnings after the steps, as sentences: memory beyond the pools exceeds the reserve, so other
// plans of this size may not fit; the GPU ran out of work too often; other processes computed on
// it.
std::optional<std::string> unplanned_text(const sweep::RunSpec& spec, const Gpu& gpu);
std::optional<std::string> host_bound_text(const GpuWatch& seen,
                                           const runlog::StepStatistics& steps);
std::optional<std::string> shared_gpu_text(const GpuWatch& seen);

}  // namespace tessera::trainer
