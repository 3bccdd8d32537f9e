// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/site.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "lib/base/command.h"
#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/cluster/slurm/commands.h"
#include "lib/cluster/slurm/text.h"

namespace tessera::cluster {

namespace {

constexpr std::size_t kMostDigits = 12;  // more is none of Slurm's numbers

bool is_digits(std::string_view text) {
  return !text.empty() && text.size() <= kMostDigits &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

std::int64_t number_of(std::string_view digits) {
  std::int64_t value = 0;
  for (const char c : digits) value = value * 10 + (c - '0');
  return value;
}

enum class Brackets : std::uint8_t { are_text, keep_together };

// Pieces between `separator`s. Kept together: the sockets of "gpu:4(S:0,2)" do not end it.
std::vector<std::string_view> split(std::string_view text, char separator,
                                    Brackets brackets = Brackets::are_text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')') --depth;
    if (text[i] != separator || (depth > 0 && brackets == Brackets::keep_together)) continue;
    parts.push_back(text.substr(start, i - start));
    start = i + 1;
  }
  parts.push_back(text.substr(start));
  return parts;
}

bool says_nothing(std::string_view text) {
  return text.empty() || text == "(null)" || text == "N/A" || text == "n/a";
}

// "16", or "16+" of a group whose others have more; 0: not said.
std::int64_t least(std::string_view text) {
  if (text.ends_with('+')) text.remove_suffix(1);
  return is_digits(text) ? number_of(text) : 0;
}

// "8", "4G" (of what is no device: Slurm prints large counts with a suffix).
std::optional<std::int64_t> count_of(std::string_view text) {
  constexpr std::string_view kSuffixes = "KMGTP";
  std::int64_t unit = 1;
  if (!text.empty()) {
    const std::size_t power = kSuffixes.find(text.back());
    if (power != std::string_view::npos) {
      for (std::size_t i = 0; i <= power; ++i) unit *= 1024;
      text.remove_suffix(1);
    }
  }
  constexpr std::size_t kMostWithUnit = 4;
  if (!is_digits(text) || (unit > 1 && text.size() > kMostWithUnit)) return std::nullopt;
  return number_of(text) * unit;
}

void add_once(std::vector<std::string>& names, std::string_view name) {
  if (!name.empty() && std::ranges::find(names, name) == names.end()) names.emplace_back(name);
}

// Reads `sacctmgr show user ME withassoc`: default account, account, its qualities of service.
void read_associations(std::string_view text, SlurmSite& site) {
  std::vector<std::string> other_qos;
  for (const std::string_view line : trimmed_lines(text)) {
    const auto fields = split(line, '|');
    if (fields.size() != 3) continue;
    if (site.default_account.empty()) site.default_account = fields[0];
    add_once(site.accounts, fields[1]);
    const bool of_default = fields[1] == site.default_account;
    for (const std::string_view qos : split(fields[2], ','))
      add_once(of_default ? site.qos : other_qos, qos);
  }
  for (const std::string& qos : other_qos) add_once(site.qos, qos);
}

CommandResult ask(const std::vector<std::string>& words, double limit_s) {
  CommandResult result = run_slurm(words, limit_s);
  if (result.exit_code == kNoProgram) {
    throw Error(ExitCode::unreachable, words.front(), "it is not there or cannot be started",
                "is this a host of a Slurm cluster?");
  }
  if (result.exit_code != 0 || result.timed_out) throw_unreachable(words.front(), result);
  return result;
}

}  // namespace

std::vector<SlurmGres> parse_gres(std::string_view text) {
  std::vector<SlurmGres> all;
  if (says_nothing(text)) return all;
  for (std::string_view part : split(text, ',', Brackets::keep_together)) {
    part = part.substr(0, part.find('('));  // sockets, cores or indices
    std::vector<std::string_view> words = split(part, ':');
    std::erase(words, "no_consume");
    if (words.empty() || words.front().empty()) continue;
    SlurmGres gres{.name = std::string(words.front()), .count = 1};
    if (words.size() > 1) {
      if (const auto count = count_of(words.back())) {
        gres.count = *count;
        words.pop_back();
      }
    }
    if (words.size() > 1) gres.type = words[1];
    all.push_back(std::move(gres));
  }
  return all;
}

std::vector<SlurmNodes> parse_sinfo(std::string_view text) {
  constexpr std::size_t kFields = 9;
  constexpr std::array<std::string_view, 5> kAvailable = {"up", "down", "drain", "inact",
                                                          "inactive"};
  std::vector<SlurmNodes> all;
  for (const std::string_view line : trimmed_lines(text)) {
    const auto fields = split(line, '|');
    if (fields.size() < kFields || fields[0].empty() || !is_digits(fields[3]) ||
        std::ranges::find(kAvailable, fields[1]) == kAvailable.end())
      continue;
    SlurmNodes nodes;
    std::string_view partition = fields[0];
    nodes.is_default = partition.ends_with('*');
    if (nodes.is_default) partition.remove_suffix(1);
    nodes.partition = partition;
    nodes.is_up = fields[1] == "up";
    nodes.max_time_s = parse_slurm_time(fields[2]);
    nodes.nodes = number_of(fields[3]);
    if (!says_nothing(fields[4])) nodes.state = fields[4];
    nodes.cpus = least(fields[5]);
    nodes.memory_mib = least(fields[6]);
    nodes.gres = parse_gres(fields[7]);
    if (!says_nothing(fields[8])) {
      for (const std::string_view feature : split(fields[8], ','))
        add_once(nodes.features, feature);
    }
    all.push_back(std::move(nodes));
  }
  return all;
}

std::optional<std::int64_t> parse_slurm_time(std::string_view text) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  constexpr std::int64_t kDay = 86400;
  constexpr std::size_t kMostDigitsOfPart = 9;
  std::int64_t total = 0;
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string_view::npos;
  if (has_days) {
    const std::string_view days = text.substr(0, dash);
    if (!is_digits(days) || days.size() > kMostDigitsOfPart) return std::nullopt;
    total = number_of(days) * kDay;
    text.remove_prefix(dash + 1);
  }
  const auto parts = split(text, ':');
  if (parts.size() > 3) return std::nullopt;
  // "5" are minutes, "5:30" minutes and seconds; behind days "5" are hours, "5:30" hours, minutes.
  const std::int64_t first = has_days || parts.size() == 3 ? kHour : kMinute;
  std::int64_t unit = first;
  for (const std::string_view part : parts) {
    if (!is_digits(part) || part.size() > kMostDigitsOfPart) return std::nullopt;
    total += number_of(part) * unit;
    unit /= kMinute;
  }
  return total;
}

SlurmSite ask_slurm_site(double command_limit_s) {
  SlurmSite site;
  const std::string format = fmt::format("--format={}", kSinfoFormat);
  site.nodes = parse_sinfo(ask({"sinfo", "--noheader", "--exact", format}, command_limit_s).out);
  const std::string config = ask({"scontrol", "show", "config"}, command_limit_s).out;
  site.version = slurm_text_setting(config, "SLURM_VERSION");
  site.name = slurm_text_setting(config, "ClusterName");
  site.max_array_size = slurm_setting(config, "MaxArraySize").value_or(0);
  site.max_jobs = slurm_setting(config, "MaxJobCount").value_or(0);
  std::string select = slurm_text_setting(config, "SelectTypeParameters");
  std::ranges::transform(select, select.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  site.limits_memory = select.find("MEMORY") != std::string::npos;
  const std::string storage = slurm_text_setting(config, "AccountingStorageType");
  site.has_accounting = !says_nothing(storage) && storage != "accounting_storage/none";
  if (!site.has_accounting) return site;
  std::vector<std::string> words{"sacctmgr", "--noheader", "--parsable2", "show",
                                 "user",     user_name(),  "withassoc"};
  // One database may serve several clusters.
  if (!site.name.empty()) words.push_back("cluster=" + site.name);
  words.emplace_back("format=defaultaccount,account,qos");
  const CommandResult accounts = run_slurm(words, command_limit_s);
  if (accounts.exit_code == 0 && !accounts.timed_out) read_associations(accounts.out, site);
  return site;
}

}  // namespace tessera::cluster
