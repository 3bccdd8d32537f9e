// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/run_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "lib/base/file.h"
#include "lib/base/numbers.h"

namespace tessera::cluster {

namespace fs = std::filesystem;

namespace {

std::optional<int> number(std::string_view text) {
  constexpr std::size_t kMostDigits = 9;
  if (text.size() > kMostDigits) return std::nullopt;
  const auto value = parse_integer(text);
  return value && *value >= 0 ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

template <class Use>
void each_file(const fs::path& folder, const std::string& prefix, const Use& use) {
  std::error_code fault;
  for (fs::directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix)) use(it->path(), std::string_view(name).substr(prefix.size()));
  }
}

}  // namespace

std::vector<fs::path> output_files(const fs::path& run_dir, int attempt) {
  std::vector<std::pair<std::pair<int, int>, fs::path>> of_ranks;
  each_file(run_dir, fmt::format("out.{}.", attempt),
            [&](const fs::path& path, std::string_view rest) {
              const std::size_t dot = rest.find('.');
              if (dot == std::string_view::npos) return;
              const auto restart = number(rest.substr(0, dot));
              const auto rank = number(rest.substr(dot + 1));
              if (restart && rank) of_ranks.emplace_back(std::pair(*restart, *rank), path);
            });
  std::ranges::sort(of_ranks);
  std::vector<fs::path> files;
  fs::path script = run_dir / fmt::format("script.{}.out", attempt);
  if (is_file(script)) files.push_back(std::move(script));
  for (auto& [order, path] : of_ranks) files.push_back(std::move(path));
  return files;
}

std::optional<int> noted_exit_code(const fs::path& run_dir, int attempt) {
  int newest = -1;
  std::optional<int> code;
  each_file(run_dir, fmt::format("exit.{}.", attempt),
            [&](const fs::path& path, std::string_view rest) {
              const auto restart = number(rest);
              if (!restart || *restart <= newest) return;
              const auto text = read_file_if_exists(path);
              if (!text) return;
              newest = *restart;
              code = number(std::string_view(*text).substr(0, text->find('\n')));
            });
  return code;
}

}  // namespace tessera::cluster
