// SPDX-License-Identifier: Apache-2.0
// submit, trainer and collect as a user runs them on the Slurm cluster of the tests.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lib/base/command.h"
#include "lib/base/csv.h"
#include "lib/base/file.h"
#include "lib/ledger/ledger.h"
#include "tests/cluster/slurm_place.h"

namespace tessera::test {

// In the environment of each command, and to be in no file.
inline constexpr const char* kPlanted = "planted-0f3c-secret";

// A user's folder with a cluster file, a model and a state of its own.
class Desk {
 public:
  explicit Desk(const std::string& name) : folder_(slurm_folder() / name) {
    std::filesystem::create_directories(folder_);
    write("tiny.yaml",
          "tessera_model: 1\nname: tiny\nd_model: 32\nn_layers: 1\nn_heads: 1\nffn: 64\n"
          "vocab: 128\nmax_seq_len: 16\nlr: 1.0e-3\n");
    write_cluster("");
  }

  void write(const std::string& name, const std::string& text) const {
    write_file_atomically(folder_ / name, text);
  }
  // Ranks of one machine's nodes meet on loopback.
  void write_cluster(const std::string& more) const {
    write("dev.yaml", fmt::format("tessera_cluster: 1\nkind: slurm\nworkspace: {}\n"
                                  "trainer: {{path: {}}}\n"
                                  "gpus: {{cpu: {{per_node: 2, nodes: 3}}}}\n"
                                  "env: {{TESSERA_INTERFACE: lo}}\n"
                                  "limits: {{poll_s: 0.5, lookup_s: 1.5}}\n"
                                  "slurm: {{account: dev, exclude: [node04]{}}}\n",
                                  (folder_ / "runs").string(), slurm_trainer().string(), more));
  }

  CommandResult run(const std::string& program, const std::vector<std::string>& arguments) const {
    std::vector<std::string> words{"/usr/bin/env",
                                   "-C",
                                   folder_.string(),
                                   "TESSERA_STATE_DIR=" + (folder_ / "state").string(),
                                   "XDG_CONFIG_HOME=" + (folder_ / "config").string(),
                                   fmt::format("WANDB_API_KEY={}", kPlanted),
                                   (slurm_state() / "bin" / program).string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_command(words);
  }

  // Points of 1, 2 and 4 ranks: alone, on one node, on two. `batches`: in sequences.
  static std::vector<std::string> sweep(const std::string& project,
                                        const std::vector<std::string>& batches,
                                        const std::vector<std::string>& more) {
    std::vector<std::string> words{"-m", "./tiny.yaml", "--seq_lens", "16", "--batch_sizes"};
    words.insert(words.end(), batches.begin(), batches.end());
    for (const char* word :
         {"-g", "1", "2", "4", "-t", "fp32", "-c", "./dev.yaml", "--steps", "8", "--warmup", "2",
          "--microbatch_size", "1", "--set", "threads=1", "--sharding_strategy", "NO_SHARD"})
      words.emplace_back(word);
    words.insert(words.end(), {"--project", project});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  std::map<std::string, ledger::RunState> states(const std::string& project) const {
    return ledger::run_states(ledger::read_ledger(folder_ / "runs" / project));
  }

  std::vector<std::map<std::string, std::string>> rows(const std::string& project) const {
    const auto path = folder_ / "results" / project / "results.csv";
    const CsvTable table = parse_csv(read_file(path), path.string());
    std::vector<std::map<std::string, std::string>> rows;
    for (const CsvRow& cells : table.rows) {
      auto& row = rows.emplace_back();
      for (std::size_t i = 0; i < cells.cells.size(); ++i) row[table.columns[i]] = cells.cells[i];
    }
    return rows;
  }

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace tessera::test
