// SPDX-License-Identifier: Apache-2.0
// What a Slurm cluster has and allows, as sinfo, scontrol and sacctmgr say: what `submit init`
// writes a cluster file from and `submit doctor` holds one against. Reading texts is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cluster {

// "gpu:h100:8(S:0-1)" is {gpu, h100, 8}; "gpu:4" has no type.
struct SlurmGres {
  std::string name;
  std::string type;
  std::int64_t count = 0;
  bool operator==(const SlurmGres&) const = default;
};

// Nodes of one partition that are alike.
struct SlurmNodes {
  std::string partition;
  bool is_default = false;                 // partition of who names none
  bool is_up = true;                       // of the partition: takes and starts jobs
  std::optional<std::int64_t> max_time_s;  // of a job; nothing: none
  std::int64_t nodes = 0;
  std::string state;  // "idle", "mixed", "down*"
  std::int64_t cpus = 0;
  std::int64_t memory_mib = 0;
  std::vector<SlurmGres> gres;
  std::vector<std::string> features;  // what --constraint can name
};

struct SlurmSite {
  std::string version;  // of the controller: "22.05.8"
  std::string name;     // ClusterName
  bool has_accounting = false;
  bool limits_memory = false;  // jobs are given memory, and what they do not ask for is a default
  std::int64_t max_array_size = 0;  // 0: not said
  std::int64_t max_jobs = 0;        // MaxJobCount, of all users; 0: not said
  std::vector<SlurmNodes> nodes;
  // What this user may use; empty where there is none or Slurm does not say.
  std::vector<std::string> accounts;
  std::string default_account;
  std::vector<std::string> qos;
};

inline constexpr std::string_view kSinfoFormat = "%P|%a|%l|%D|%T|%c|%m|%G|%f";

std::vector<SlurmGres> parse_gres(std::string_view text);
// Parses the output of sinfo with kSinfoFormat. Passes over other lines.
std::vector<SlurmNodes> parse_sinfo(std::string_view text);
// "1-00:00:00", "30:00", "5" (minutes); nothing: "infinite", "UNLIMITED", or not a time.
std::optional<std::int64_t> parse_slurm_time(std::string_view text);

// Asks with sinfo, scontrol and, where there is accounting, sacctmgr (whose silence is no fault).
// Error(unreachable) where one of the first two does not answer, with what it said.
SlurmSite ask_slurm_site(double command_limit_s = 60);

}  // namespace tessera::cluster
