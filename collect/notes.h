// SPDX-License-Identifier: Apache-2.0
// What a person should know about files that were left out or damaged: one line each, naming the
// file and what was done.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::collect {

class Notes {
 public:
  void add(const std::filesystem::path& where, const std::string& what) {
    lines_.push_back(where.string() + ": " + what);
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

}  // namespace tessera::collect
