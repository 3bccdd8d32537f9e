// SPDX-License-Identifier: Apache-2.0
// Who a process is, so that a pid that was given out again is not taken for it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

// The value of an environment variable; empty where it is not set.
std::string environment_variable(const char* name);

std::string host_name();
std::string user_name();
// Logical CPUs that this process may use, at least 1.
int usable_cpus();
// Changes at each boot of this machine.
std::string boot_id();
// Clock ticks after boot at which the process began, or nothing if it is gone (a zombie is gone).
std::optional<std::int64_t> start_ticks(pid_t pid);

// A process of some host and boot.
struct ProcessRef {
  std::string host;
  std::string boot;
  pid_t pid = 0;
  std::int64_t start_ticks = 0;
  bool operator==(const ProcessRef&) const = default;
};

enum class Liveness : std::uint8_t {
  alive,
  dead,
  elsewhere
};  // elsewhere: another host, cannot be known

Liveness liveness(const ProcessRef& process);
ProcessRef this_process();

// One JSON object, as in lock and pid files.
std::string process_json(const ProcessRef& process, const std::string& user);
std::optional<ProcessRef> parse_process(const std::string& json, std::string* user = nullptr);

}  // namespace tessera
