// How much of the CPU time that this process's threads wanted they got: what other work on the
// machine, a container's quota, or more threads than CPUs took from a run.
#pragma once

#include <filesystem>
#include <optional>

namespace tessera::trainer {

// Of all living threads, since they began. Linux counts both (proc(5),
// /proc/PID/task/TID/schedstat): the time on a CPU, and the time ready to run without one. A thread
// that spins is on a CPU, one that sleeps waits for none. What a virtual machine's host takes is
// not seen.
struct CpuTimes {
  double ran_s = 0;
  double waited_s = 0;
  int threads = 0;
};

// Nothing where the kernel does not say it. `tasks`: a folder with one folder a thread.
std::optional<CpuTimes> cpu_times(const std::filesystem::path& tasks = "/proc/self/task");

// The kernel brings a running thread's time up to date at its clock's ticks only, up to 10 ms
// apart.
inline constexpr double kLeastThreadSeconds = 0.2;

// Ran / (ran + waited) between the two, at most 1; nothing where either is not known, or ran and
// waited together are less than kLeastThreadSeconds a thread.
std::optional<double> cpu_share(const std::optional<CpuTimes>& before,
                                const std::optional<CpuTimes>& after);

}  // namespace tessera::trainer
