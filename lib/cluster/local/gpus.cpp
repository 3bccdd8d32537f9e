// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/local/gpus.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/file.h"

namespace tessera::cluster {

std::vector<std::string> split_gpus(std::string_view list) {
  constexpr std::string_view kSpace = " \t";
  std::vector<std::string> gpus;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    std::string_view gpu = list.substr(0, end);
    list.remove_prefix(std::min(list.size(), end + 1));
    gpu.remove_prefix(std::min(gpu.size(), gpu.find_first_not_of(kSpace)));
    gpu = gpu.substr(0, gpu.find_last_not_of(kSpace) + 1);
    if (gpu.empty() || gpu.starts_with('-')) break;
    gpus.emplace_back(gpu);
  }
  return gpus;
}

std::vector<std::string> gpus_to_take(const std::optional<std::string>& visible,
                                      std::int64_t per_node) {
  std::vector<std::string> gpus;
  if (visible) {
    gpus = split_gpus(*visible);
    if (static_cast<std::int64_t>(gpus.size()) > per_node)
      gpus.resize(static_cast<std::size_t>(per_node));
    return gpus;
  }
  for (std::int64_t i = 0; i < per_node; ++i) gpus.push_back(fmt::to_string(i));
  return gpus;
}

std::vector<std::string> choose_gpus(const std::vector<std::string>& gpus,
                                     const std::vector<std::string>& taken, std::int64_t count) {
  if (count < 1 || static_cast<std::int64_t>(gpus.size()) < count) return {};
  std::vector<std::string> chosen = gpus;
  std::ranges::stable_sort(chosen, {},
                           [&](const std::string& gpu) { return std::ranges::count(taken, gpu); });
  chosen.resize(static_cast<std::size_t>(count));
  return chosen;
}

std::vector<std::string> gpus_of_process(int pid) try {
  const auto text = read_file_if_exists(fmt::format("/proc/{}/environ", pid));
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  const std::string wanted = fmt::format("{}=", kVisibleGpus);
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    if (entry.starts_with(wanted)) return split_gpus(entry.substr(wanted.size()));
  }
  return {};
} catch (const Error&) {
  return {};  // it has just ended, or is another user's
}

}  // namespace tessera::cluster
