// SPDX-License-Identifier: Apache-2.0
#include "lib/base/process.h"

#include <pwd.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/base/tree.h"

namespace tessera {

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

std::string user_name() {
  if (const passwd* entry = ::getpwuid(::geteuid())) return entry->pw_name;
  return std::to_string(::geteuid());
}

int usable_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    return std::max(1, CPU_COUNT(&allowed));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::string boot_id() {
  const auto text = read_file_if_exists("/proc/sys/kernel/random/boot_id");
  return text ? text->substr(0, text->find('\n')) : "unknown";
}

std::optional<std::int64_t> start_ticks(pid_t pid) try {
  const auto stat = read_file_if_exists("/proc/" + std::to_string(pid) + "/stat");
  if (!stat) return std::nullopt;
  // The command's name stands in parentheses and may hold anything; the state follows, 19 fields on
  // is the start.
  std::istringstream fields(stat->substr(std::min(stat->size(), stat->rfind(')') + 1)));
  std::string state;
  fields >> state;
  if (state.empty() || state == "Z" || state == "X") return std::nullopt;
  std::string field;
  for (int i = 0; i < 19; ++i) fields >> field;
  return parse_integer(field);
} catch (const Error&) {
  return std::nullopt;  // it ended while its file was read
}

Liveness liveness(const ProcessRef& process) {
  if (process.host != host_name()) return Liveness::elsewhere;
  if (process.boot != boot_id()) return Liveness::dead;
  return start_ticks(process.pid) == process.start_ticks ? Liveness::alive : Liveness::dead;
}

ProcessRef this_process() {
  return {.host = host_name(),
          .boot = boot_id(),
          .pid = ::getpid(),
          .start_ticks = start_ticks(::getpid()).value_or(0)};
}

std::string process_json(const ProcessRef& process, const std::string& user) {
  nlohmann::ordered_json json;
  json["host"] = process.host;
  json["boot"] = process.boot;
  json["pid"] = process.pid;
  json["start_ticks"] = process.start_ticks;
  json["user"] = user;
  return json.dump() + "\n";
}

std::optional<ProcessRef> parse_process(const std::string& json, std::string* user) try {
  const Value value = parse_json(json, "process");
  Fields fields(value, "a process");
  ProcessRef process;
  process.host = as_text(fields.required("host"));
  process.boot = as_text(fields.required("boot"));
  process.pid = static_cast<pid_t>(as_integer(fields.required("pid"), 1, 1 << 30));
  process.start_ticks = as_integer(fields.required("start_ticks"), 0);
  if (user != nullptr) *user = as_text(fields.required("user"));
  return process;
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace tessera
