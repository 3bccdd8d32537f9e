// SPDX-License-Identifier: Apache-2.0
// `submit init` on a real Slurm: the file that it writes is used as it is.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "lib/base/command.h"
#include "lib/base/csv.h"
#include "lib/base/file.h"
#include "lib/cluster/slurm/site.h"
#include "tests/cluster/slurm_desk.h"

using namespace tessera;
using namespace tessera::test;

namespace fs = std::filesystem;

TEST_CASE("a site as a real Slurm tells it") {
  const cluster::SlurmSite site = cluster::ask_slurm_site();
  CHECK(site.name == "dev");
  CHECK_FALSE(site.version.empty());
  CHECK(site.has_accounting);
  CHECK(site.limits_memory);
  CHECK(site.max_array_size == 1001);
  CHECK(site.max_jobs == 10000);
  CHECK(std::ranges::count(site.accounts, "dev") == 1);
  CHECK(std::ranges::count(site.accounts, site.default_account) == 1);
  CHECK(std::ranges::count(site.qos, "tiny") == 1);
  std::map<std::string, std::int64_t> nodes;
  for (const cluster::SlurmNodes& each : site.nodes) {
    nodes[each.partition] += each.nodes;
    CHECK(each.is_default == (each.partition == "main"));
    CHECK(each.is_up);
    CHECK(each.max_time_s == (each.partition == "main" ? 3600 : 300));
    CHECK(each.cpus == 16);
    CHECK(each.memory_mib == 64000);
    CHECK(each.gres == std::vector<cluster::SlurmGres>{{"gpu", "h100", 8}});
  }
  CHECK(nodes == std::map<std::string, std::int64_t>{{"main", 4}, {"small", 1}});
}

// The file asks for whole nodes, which others keep as long as they run.
TEST_CASE("the file of init is used as it is, from plan to table [alone]") {
  const Desk desk("init");
  const CommandResult made = desk.run("submit", {"init", "mine"});
  CAPTURE(made.out);
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  const fs::path file = desk.folder() / "config/tessera/clusters/mine.yaml";
  const cluster::Cluster cluster = cluster::read_cluster(file.string());
  CHECK(cluster.slurm.partition == "main");
  // What the site says fits the file that was made of it.
  const CommandResult fits = desk.run("submit", {"doctor", "-c", "mine", "--no-jobs"});
  CAPTURE(fits.out);
  CHECK(fits.exit_code == 0);
  CHECK(cluster.workspace == (desk.folder() / "runs").string());
  CHECK(cluster.trainer.path == slurm_trainer().string());
  CHECK(cluster.max_time_s == 3600);
  // "h100" may be either of two, and none was taken.
  CHECK(made.out.find("gpu:h100") != std::string::npos);
  REQUIRE(cluster.gpus.size() == 1);
  CHECK(cluster.gpus[0].name == "cpu");
  CHECK(cluster.gpus[0].nodes == 4);

  const std::vector<std::string> sweep{"-m",        "cpu-2m",
                                       "-s",        "7",
                                       "7",         "--batch_sizes",
                                       "4",         "--microbatch_size",
                                       "1",         "-t",
                                       "fp32",      "-c",
                                       "mine",      "--gpu_types",
                                       "cpu",       "--set",
                                       "threads=1", "--steps",
                                       "4",         "--warmup",
                                       "2",         "--project",
                                       "first"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = sweep;
    words.insert(words.end(), more.begin(), more.end());
    return desk.run("submit", words);
  };
  const CommandResult checked = with({"--check"});
  CAPTURE(checked.err);
  CHECK(checked.exit_code == 0);
  CHECK(checked.out.find("in partition main") != std::string::npos);
  const CommandResult done = with({"--RUN", "--wait"});
  CAPTURE(done.out);
  CAPTURE(done.err);
  CHECK(done.exit_code == 0);
  CHECK(done.out.find("1 ok, 0 not ok") != std::string::npos);
  REQUIRE(desk.run("collect", {}).exit_code == 0);
  const fs::path results = desk.folder() / "results/first/results.csv";
  const CsvTable table = parse_csv(read_file(results), results.string());
  REQUIRE(table.rows.size() == 1);
  std::map<std::string, std::string> row;
  for (std::size_t i = 0; i < table.columns.size(); ++i)
    row[table.columns[i]] = table.rows[0].cells[i];
  CHECK(row["status"] == "ok");
  CHECK(row["cluster"] == "mine");
  CHECK_FALSE(row["job"].empty());
  // A GPU whose # was taken away is asked for by Slurm's name, and Slurm would give it.
  std::string text = read_file(file);
  const std::size_t at = text.find("  # h100_80gb: ");
  REQUIRE(at != std::string::npos);
  write_file_atomically(file, text.replace(at, 4, "  "));
  const CommandResult gpus = desk.run(
      "submit", {"-m", "cpu-2m", "-s", "7", "7", "--batch_sizes", "32", "-g", "1", "16", "-c",
                 "mine", "--gpu_types", "h100_80gb", "--project", "gpus", "--check"});
  CAPTURE(gpus.out);
  CAPTURE(gpus.err);
  if (gpus.err.find("built without CUDA") == std::string::npos) {
    CHECK(gpus.exit_code == 0);
    CHECK(gpus.out.find("mine: 1 job of 1 h100_80gb on 1 node") != std::string::npos);
    // Slurm is not asked for several GPUs, on which the trainer does not train.
    CHECK(gpus.out.find("16 h100_80gb") == std::string::npos);
  }

  const CommandResult again = desk.run("submit", {"init", "mine"});
  CHECK(again.exit_code == 8);
  const CommandResult wrong = desk.run("submit", {"init", "other", "--partition", "large"});
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err == "submit: --partition: there is no partition 'large'; one of main, small\n");
}
