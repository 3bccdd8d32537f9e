// The device of a run: this machine's CPU with some threads, or one of its GPUs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lib/runlog/footer.h"
#include "trainer/device/gpu.h"
#include "trainer/run/records.h"

namespace tessera::trainer {

// The GPU that an accepted specification asks for, null if it asks for a CPU. Error(wrong_device)
// where another one is there than is expected.
std::unique_ptr<Gpu> open_run_gpu(const sweep::RunSpec& spec);

// What a plan leaves of a GPU's memory: what the specification says, else 2 GiB.
std::int64_t reserve_of(const sweep::RunSpec& spec);

// What a plan may take of the GPU's memory or, if there is none, of a machine's; 0: not known.
std::int64_t run_capacity(const sweep::RunSpec& spec, const Gpu* gpu, std::int64_t machine_bytes);

// The specification's peak (none: collect looks for one by the driver's name), and what large
// products reach, measured for about a second.
MeasuredPeak gpu_peak(const sweep::RunSpec& spec, Gpu& gpu);

// Clock, power, temperature, throttling and company of the measured steps.
void add(const GpuWatch& seen, runlog::Footer& footer);

// What there is to warn of after the steps, as a sentence. More than the reserve is in use beyond
// the pools, so other plans of this size may not fit; the GPU had nothing left to do too often;
// other processes computed on it.
std::optional<std::string> unplanned_text(const sweep::RunSpec& spec, const Gpu& gpu);
std::optional<std::string> host_bound_text(const GpuWatch& seen,
                                           const runlog::StepStatistics& steps);
std::optional<std::string> shared_gpu_text(const GpuWatch& seen);

}  // namespace tessera::trainer
