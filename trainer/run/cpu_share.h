// SPDX-License-Identifier: Apache-2.0
// The share of the CPU time that this process's threads wanted and got. Other work on the machine,
// a container's quota, or more threads than CPUs take the rest.
#pragma once

#include <filesystem>
#include <optional>

namespace tessera::trainer {

// CPU times of all living threads since they began. Linux counts both (proc(5),
// /proc/PID/task/TID/schedstat): the time on a CPU, and the time ready to run without one. A thread
// that spins is on a CPU; one that sleeps waits for none. What a virtual machine's host takes is
// not seen.
struct CpuTimes {
  double ran_s = 0;
  double waited_s = 0;
  int threads = 0;
};

// Returns nothing if the kernel does not tell. `tasks`: a folder with one folder for each thread.
std::optional<CpuTimes> cpu_times(const std::filesystem::path& tasks = "/proc/self/task");

// The kernel updates a running thread's time only at its clock's ticks, up to 10 ms apart, so
// shorter periods say nothing.
inline constexpr double kLeastThreadSeconds = 0.2;

// Returns ran / (ran + waited) between the two, at most 1. Nothing if either is unknown, or if ran
// and waited together are less than kLeastThreadSeconds a thread.
std::optional<double> cpu_share(const std::optional<CpuTimes>& before,
                                const std::optional<CpuTimes>& after);

}  // namespace tessera::trainer
