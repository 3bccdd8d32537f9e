// SPDX-License-Identifier: Apache-2.0
// `submit init` where there is no Slurm, and with stand-ins for its commands that print what Slurm
// 22.05 does. tests/cluster has it on a real one.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "lib/base/file.h"
#include "lib/cluster/cluster_file.h"
#include "tests/apps/submit/submit_program.h"

using namespace tessera;

namespace {

namespace fs = std::filesystem;

// A user's folder, configuration and PATH.
class User {
 public:
  User() {
    fs::create_directories(folder_ / "work");
    fs::create_directories(folder_ / "bin");
    for (const char* tool : {"bash", "cat"})
      fs::create_symlink(fmt::format("/bin/{}", tool), folder_ / "bin" / tool);
  }

  void command(const std::string& name, const std::string& body) const {
    const fs::path path = folder_ / "bin" / name;
    std::ofstream(path) << "#!/bin/bash\n" << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }
  void slurm() const {
    command("sinfo",
            "echo 'main*|up|1:00:00|4|idle|16|64000|gpu:b200:8|(null)'\n"
            "echo 'small|up|5:00|1|idle|16|64000|(null)|(null)'");
    command("scontrol",
            "echo 'ClusterName = dev'; echo 'SLURM_VERSION = 22.05.8'\n"
            "echo 'SelectTypeParameters = CR_CORE_MEMORY'; echo 'MaxArraySize = 1001'\n"
            "echo 'AccountingStorageType = accounting_storage/none'");
  }

  CommandResult run(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& variables = {}) const {
    const char* bin = std::getenv("TESSERA_BIN");
    REQUIRE(bin != nullptr);
    std::vector<std::string> words{"/usr/bin/env",
                                   "-C",
                                   (folder_ / "work").string(),
                                   "-u",
                                   "TESSERA_WORKSPACE",
                                   "TESSERA_STATE_DIR=" + (folder_ / "state").string(),
                                   "XDG_CONFIG_HOME=" + (folder_ / "config").string(),
                                   "PATH=" + (folder_ / "bin").string()};
    words.insert(words.end(), variables.begin(), variables.end());
    words.push_back(std::string(bin) + "/submit");
    words.insert(words.end(), arguments.begin(), arguments.end());
    return run_command(words);
  }
  // One line and this exit code; no file was written.
  std::string fault(const std::vector<std::string>& arguments, ExitCode code) const {
    const bool was_there = fs::exists(folder_ / "config");
    const CommandResult result = run(arguments);
    CAPTURE(result.out);
    CAPTURE(result.err);
    CHECK(result.exit_code == static_cast<int>(code));
    CHECK(result.err.starts_with("submit: "));
    CHECK(result.err.find('\n') == result.err.size() - 1);
    CHECK(fs::exists(folder_ / "config") == was_there);
    return result.err.substr(8, result.err.size() - 9);
  }
  fs::path file(const std::string& name) const {
    return folder_ / ("config/tessera/clusters/" + name + ".yaml");
  }
  fs::path work() const { return fs::canonical(folder_ / "work"); }

 private:
  test::TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("init without Slurm says so in one line and writes nothing") {
  const User user;
  CHECK(user.fault({"init", "hgx"}, ExitCode::unreachable) ==
        "sinfo: it is not there or cannot be started; is this a host of a Slurm cluster?");
  user.command("sinfo",
               "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' "
               ">&2; exit 1");
  CHECK(user.fault({"init", "hgx"}, ExitCode::unreachable) ==
        "sinfo: slurm_load_partitions: Unable to contact slurm controller (connect failure)");
  user.slurm();
  user.command("sinfo", "exit 0");
  CHECK(user.fault({"init", "hgx"}, ExitCode::refused) ==
        "sinfo: shows no partition that you may use; ask those who run the cluster for access");
}

TEST_CASE("init writes a cluster file that plans are made on, and says what comes next") {
  const User user;
  user.slurm();
  const CommandResult made = user.run({"init", "hgx"});
  CAPTURE(made.out);
  CHECK(made.err.empty());
  REQUIRE(made.exit_code == 0);
  CHECK(
      made.out.starts_with(user.file("hgx").string() + ": partition main of dev, 4 nodes, b200\n"));
  for (const char* part : {"submit doctor -c hgx\n", "-c hgx --gpu_types cpu"}) {
    CAPTURE(part);
    CHECK(made.out.find(part) != std::string::npos);
  }
  const cluster::Cluster cluster = cluster::read_cluster(user.file("hgx").string());
  CHECK(cluster.workspace == (user.work() / "runs").string());
  CHECK(fs::is_regular_file(cluster.trainer.path));
  CHECK(cluster.slurm.partition == "main");
  // The line that was printed last, as it stands.
  const CommandResult planned =
      user.run({"-m", "cpu-2m", "-s", "7", "8", "--batch_sizes", "4", "--microbatch_size", "1",
                "-t", "fp32", "-c", "hgx", "--gpu_types", "cpu", "--set", "threads=1"});
  CAPTURE(planned.err);
  CHECK(planned.exit_code == 0);
  CHECK(planned.out.find("2 points") != std::string::npos);
  // Its GPUs too.
  const CommandResult gpus =
      user.run({"-m", "cpu-2m", "-s", "7", "7", "--batch_sizes", "32", "-g", "8", "-c", "hgx"});
  CAPTURE(gpus.err);
  CHECK(gpus.exit_code == 0);
  CHECK(gpus.out.find("b200") != std::string::npos);
}

TEST_CASE("--check of a Slurm that cannot be asked is one line, whatever there is to be asked") {
  const User user;
  std::ofstream(user.work() / "c.yaml")
      << "tessera_cluster: 1\nkind: slurm\nworkspace: /w\n"
         "gpus: {h200: {per_node: 1}, h100_80gb: {per_node: 1}}\n"
         "trainer: {path: /w/trainer}\n";  // built with CUDA, whatever this one is
  const std::vector<std::string> check{"-m", "125m",        "-c", "c.yaml", "--microbatch_size",
                                       "1",  "--workspace", "/w", "--check"};
  const std::string fix = "; is this a host of the cluster, and does its controller run?\n";
  const auto last_line = [&] {
    const CommandResult result = user.run(check);
    CAPTURE(result.err);
    CHECK(result.exit_code == static_cast<int>(ExitCode::unreachable));
    CHECK(result.out.empty());
    const std::size_t begin = result.err.rfind("submit: ");
    return begin == std::string::npos ? result.err : result.err.substr(begin);
  };
  CHECK(last_line() ==
        "submit: c: cannot be asked: sbatch --test-only: it is not there or cannot be started" +
            fix);
  user.command("sbatch",
               "echo 'sbatch: error: fetch_config: DNS SRV lookup failed' >&2; echo 'sbatch: "
               "fatal: Could not establish a configuration source' >&2; exit 1");
  CHECK(last_line() ==
        "submit: c: cannot be asked: sbatch --test-only: Could not establish a configuration "
        "source" +
            fix);
  // What it answers to is told kind by kind.
  user.command("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1");
  const CommandResult refused = user.run(check);
  CHECK(refused.exit_code == static_cast<int>(ExitCode::refused));
  CHECK(refused.err.ends_with("submit: --check: 2 kinds of job would be refused\n"));
}

TEST_CASE("init overwrites nothing") {
  const User user;
  user.slurm();
  REQUIRE(user.run({"init", "hgx"}).exit_code == 0);
  const std::string mine = read_file(user.file("hgx")) + "# mine\n";
  write_file_atomically(user.file("hgx"), mine);
  CHECK(user.fault({"init", "hgx"}, ExitCode::conflict) ==
        user.file("hgx").string() + ": is there already; edit it, remove it, or take another name");
  CHECK(read_file(user.file("hgx")) == mine);
  // A link that leads nowhere is somebody's too.
  fs::create_symlink("/nowhere/at/all", user.file("link"));
  CHECK(user.run({"init", "link"}).exit_code == static_cast<int>(ExitCode::conflict));
}

TEST_CASE("init's workspace: flag, variable, runs beside") {
  const User user;
  user.slurm();
  const auto workspace = [&](const std::string& name, const std::vector<std::string>& flags,
                             const std::vector<std::string>& variables) {
    std::vector<std::string> words{"init", name};
    words.insert(words.end(), flags.begin(), flags.end());
    const CommandResult made = user.run(words, variables);
    CAPTURE(made.err);
    REQUIRE(made.exit_code == 0);
    return cluster::read_cluster(user.file(name).string()).workspace;
  };
  CHECK(workspace("a", {"--workspace", "/shared/runs/"}, {"TESSERA_WORKSPACE=/other"}) ==
        "/shared/runs");
  CHECK(workspace("b", {"--workspace", "sub/../here"}, {}) == (user.work() / "here").string());
  CHECK(workspace("c", {}, {"TESSERA_WORKSPACE=/other"}) == "/other");
  CHECK(workspace("d", {"--partition", "small"}, {}) == (user.work() / "runs").string());
  CHECK(cluster::read_cluster(user.file("d").string()).slurm.partition == "small");
  CHECK(workspace("e", {"--workspace", "/with: odd #1 \"name\""}, {}) == "/with: odd #1 \"name\"");
}

TEST_CASE("init with a wrong command line") {
  const User user;
  user.slurm();
  const auto usage = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "init");
    return user.fault(words, ExitCode::usage);
  };
  CHECK(usage({}) == "NAME: is missing; write submit init NAME");
  CHECK(usage({"a", "b"}) == "b: is too much for submit init; leave it out");
  CHECK(usage({"local"}) == "init: 'local' is a built-in cluster; take another name");
  for (const char* name :
       {"a/b", "../a", ".", "..", ".hidden", "a b", "a,b", "a.yaml", "größe", "a\nb", "/tmp/a"}) {
    CAPTURE(name);
    const std::string line = usage({name});
    CHECK(line.find("is no name of a cluster; letters, digits") != std::string::npos);
  }
  CHECK(usage({"a", "--partition", "mian"}) ==
        "--partition: there is no partition 'mian'; one of main, small");
  for (const char* other : {"--project", "-m"}) {
    CHECK(usage({"a", other, "p"}) ==
          std::string(other) +
              ": does not go with submit init; leave it out; submit init --help lists what does");
  }
  CHECK(usage({"a", "--partition", ""}) == "--partition: is empty");
  CHECK(user.fault({"status", "--partition", "main"}, ExitCode::usage) ==
        "--partition: does not go with submit status; write submit init --partition");
  CHECK(user.fault({"-m", "7b", "--partition", "main"}, ExitCode::usage) ==
        "--partition: does not go with submit; write submit init --partition");
}
