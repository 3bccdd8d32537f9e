// SPDX-License-Identifier: Apache-2.0
// Where results are written, and how: both files or none.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "collect/row.h"

namespace tessera::collect {

struct ResultPaths {
  std::filesystem::path csv;
  std::filesystem::path markdown;
};

// `save_path` is a stem ("out/table" -> out/table.csv, out/table.md); a folder, or what ends in
// '/', means `results` in it; empty: results/<project>/results (results/results without a project).
ResultPaths result_paths(const std::string& save_path, const std::string& project);

// Makes the folder and writes both files; whoever reads either sees it whole, old or new. If one
// cannot be written both stay as they were. Error(io).
void save(const ResultPaths& paths, const std::string& csv, const std::string& markdown);

}  // namespace tessera::collect
