// SPDX-License-Identifier: Apache-2.0
// What a site has. The texts are those of Slurm 22.05 unless a test says what else they are; the
// commands are stand-ins that print such texts.
#include "lib/cluster/slurm/site.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::cluster;

namespace {

using Gres = std::vector<SlurmGres>;

// Slurm's commands in a PATH that has nothing else of Slurm.
class FakeSlurm {
 public:
  FakeSlurm() {
    if (const char* path = std::getenv("PATH")) old_ = path;
    std::filesystem::create_directories(folder_ / "bin");
    for (const char* tool : {"bash", "cat", "sleep"})
      std::filesystem::create_symlink(fmt::format("/bin/{}", tool), folder_ / "bin" / tool);
    ::setenv("PATH", (folder_ / "bin").c_str(), 1);
  }
  FakeSlurm(const FakeSlurm&) = delete;
  FakeSlurm& operator=(const FakeSlurm&) = delete;
  ~FakeSlurm() { ::setenv("PATH", old_.c_str(), 1); }

  // Notes its arguments, then does `body`.
  void add(const std::string& name, const std::string& body) const {
    const auto path = folder_ / "bin" / name;
    std::ofstream(path) << fmt::format("#!/bin/bash\necho \"$@\" >{}\n{}\n",
                                       (folder_ / (name + ".asked")).string(), body);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  void prints(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / (name + ".text")) << text;
    add(name, fmt::format("cat {}", (folder_ / (name + ".text")).string()));
  }
  std::optional<std::string> asked(const std::string& name) const {
    return read_file_if_exists(folder_ / (name + ".asked"));
  }

 private:
  test::TemporaryFolder folder_;
  std::string old_;
};

constexpr const char* kNodes = "main*|up|1:00:00|4|idle|16|64000|gpu:h100:8|(null)\n";
constexpr const char* kConfig =
    "Configuration data as of 2026-11-30T01:36:54\n"
    "AccountingStorageType   = accounting_storage/slurmdbd\nClusterName             = dev\n"
    "MaxArraySize            = 1001\nMaxJobCount             = 10000\n"
    "SelectType              = select/cons_tres\nSelectTypeParameters    = CR_CORE_MEMORY\n"
    "SLURM_VERSION           = 22.05.8\n\nSlurmctld(primary) at here is UP\n";

std::string fault_of_asking(double limit_s = 60) {
  try {
    ask_slurm_site(limit_s);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::unreachable);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("generic resources as Slurm prints them") {
  CHECK(parse_gres("gpu:h100:8") == Gres{{"gpu", "h100", 8}});
  CHECK(parse_gres("gpu:4") == Gres{{"gpu", "", 4}});
  CHECK(parse_gres("gpu:a100-sxm4-80gb:8(S:0-1),nic:2") ==
        Gres{{"gpu", "a100-sxm4-80gb", 8}, {"nic", "", 2}});
  CHECK(parse_gres("gpu:a100:4,gpu:a100_3g.20gb:4") ==
        Gres{{"gpu", "a100", 4}, {"gpu", "a100_3g.20gb", 4}});
  CHECK(parse_gres("(null)").empty());
  CHECK(parse_gres("").empty());
}

TEST_CASE("generic resources of the documentation's shapes") {
  // A comma between sockets ends nothing.
  CHECK(parse_gres("gpu:h100:4(S:0,2),gpu:h100:4(S:1,3)") ==
        Gres{{"gpu", "h100", 4}, {"gpu", "h100", 4}});
  CHECK(parse_gres("gpu:tesla:2(IDX:0-1)") == Gres{{"gpu", "tesla", 2}});
  CHECK(parse_gres("gpu") == Gres{{"gpu", "", 1}});
  CHECK(parse_gres("gpu:h100") == Gres{{"gpu", "h100", 1}});
  CHECK(parse_gres("gpu:1080:4") == Gres{{"gpu", "1080", 4}});
  CHECK(parse_gres("lustre:no_consume:4G") ==
        Gres{{"lustre", "", std::int64_t{4} * 1024 * 1024 * 1024}});
  CHECK(parse_gres("N/A").empty());
  CHECK(parse_gres(",:,").empty());
  CHECK(parse_gres("gpu:99999999999999999999") == Gres{{"gpu", "99999999999999999999", 1}});
}

TEST_CASE("time limits") {
  CHECK(parse_slurm_time("1:00:00") == 3600);
  CHECK(parse_slurm_time("5:00") == 300);
  CHECK(parse_slurm_time("30:00") == 1800);
  CHECK(parse_slurm_time("2-12:00:00") == 60 * 3600);
  CHECK(parse_slurm_time("7-00:00:00") == 7 * 86400);
  CHECK(parse_slurm_time("5") == 300);
  CHECK(parse_slurm_time("1-5") == 86400 + 5 * 3600);
  CHECK(parse_slurm_time("1-5:30") == 86400 + 5 * 3600 + 1800);
  CHECK(parse_slurm_time("365-00:00:00") == std::int64_t{365} * 86400);
  for (const char* text : {"infinite", "UNLIMITED", "n/a", "N/A", "", "-", "1-", "-1", ":",
                           "1:", "1:2:3:4", "1-1-1", "5m", "9999999999", "1:99999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_slurm_time(text).has_value());
  }
}

TEST_CASE("nodes and partitions") {
  const auto all = parse_sinfo(
      "main*|up|1:00:00|1|drained|16|64000|gpu:4|(null)\n"
      "main*|up|1:00:00|1|idle|16|64000|gpu:a100-sxm4-80gb:8(S:0-1),nic:2|hgx,ib\n"
      "empty|up|infinite|0|n/a|0|0|(null)|(null)\n"
      "old|down|2-12:00:00|1|down*|16|64000|(null)|(null)\n"
      "drain|drain|7-00:00:00|1|idle|16|64000|(null)|(null)\n"
      "ina|inactive|30:00|1|idle|16|64000|(null)|(null)\n");
  REQUIRE(all.size() == 6);
  CHECK(all[0].partition == "main");
  CHECK(all[0].is_default);
  CHECK(all[0].is_up);
  CHECK(all[0].max_time_s == 3600);
  CHECK(all[0].state == "drained");
  CHECK(all[1].nodes == 1);
  CHECK(all[1].cpus == 16);
  CHECK(all[1].memory_mib == 64000);
  CHECK(all[1].gres == Gres{{"gpu", "a100-sxm4-80gb", 8}, {"nic", "", 2}});
  CHECK(all[1].features == std::vector<std::string>{"hgx", "ib"});
  CHECK(all[2].partition == "empty");
  CHECK_FALSE(all[2].is_default);
  CHECK(all[2].nodes == 0);
  CHECK(all[2].state.empty());
  CHECK_FALSE(all[2].max_time_s.has_value());
  CHECK(all[2].features.empty());
  CHECK(all[3].state == "down*");
  for (const std::size_t i : {3, 4, 5}) CHECK_FALSE(all[i].is_up);
}

TEST_CASE("lines that are none of sinfo's are passed over") {
  const auto all = parse_sinfo(
      "Welcome (to the cluster\n\nPARTITION|AVAIL|TIMELIMIT|NODES|STATE|CPUS|MEMORY|GRES|FEATURES\n"
      "gpu*|up|2-00:00:00|3|mixed~|96+|1031000+|gpu:h100:8(S:0-1)|(null)\r\n"
      "half|up|1:00\n|up|1:00|1|idle|1|1|(null)|(null)\n");
  REQUIRE(all.size() == 1);
  CHECK(all[0].partition == "gpu");
  CHECK(all[0].cpus == 96);  // the least of a group
  CHECK(all[0].memory_mib == 1031000);
  CHECK(all[0].state == "mixed~");
  CHECK(all[0].features.empty());
}

TEST_CASE("a site is asked with three commands") {
  const FakeSlurm slurm;
  slurm.prints("sinfo", kNodes);
  slurm.prints("scontrol", kConfig);
  slurm.prints("sacctmgr", "dev|root|normal\ndev|dev|normal,tiny\n");
  const SlurmSite site = ask_slurm_site();
  CHECK(site.version == "22.05.8");
  CHECK(site.name == "dev");
  CHECK(site.has_accounting);
  CHECK(site.limits_memory);
  CHECK(site.max_array_size == 1001);
  CHECK(site.max_jobs == 10000);
  REQUIRE(site.nodes.size() == 1);
  CHECK(site.nodes[0].gres == Gres{{"gpu", "h100", 8}});
  CHECK(site.default_account == "dev");
  CHECK(site.accounts == std::vector<std::string>{"root", "dev"});
  CHECK(site.qos == std::vector<std::string>{"normal", "tiny"});
  CHECK(slurm.asked("sinfo") == "--noheader --exact --format=%P|%a|%l|%D|%T|%c|%m|%G|%f\n");
  CHECK(slurm.asked("sacctmgr") ==
        fmt::format("--noheader --parsable2 show user {} withassoc cluster=dev "
                    "format=defaultaccount,account,qos\n",
                    user_name()));
}

TEST_CASE("silence of the accounts is no fault, and who keeps none is not asked") {
  const FakeSlurm slurm;
  slurm.prints("sinfo", kNodes);
  slurm.prints("scontrol", kConfig);
  slurm.add("sacctmgr", "echo 'sacctmgr: error: Problem talking to the database' >&2; exit 1");
  SlurmSite site = ask_slurm_site();
  CHECK(site.has_accounting);
  CHECK(site.accounts.empty());
  CHECK(site.default_account.empty());
  REQUIRE(slurm.asked("sacctmgr").has_value());

  for (const char* storage : {"accounting_storage/none", "(null)"}) {
    const FakeSlurm bare;
    bare.prints("sinfo", kNodes);
    bare.prints("scontrol", fmt::format("AccountingStorageType = {}\nSelectTypeParameters = "
                                        "CR_CORE\n",
                                        storage));
    bare.prints("sacctmgr", "dev|dev|normal\n");
    site = ask_slurm_site();
    CHECK_FALSE(site.has_accounting);
    CHECK_FALSE(site.limits_memory);
    CHECK(site.accounts.empty());
    CHECK(site.max_jobs == 0);
    CHECK_FALSE(bare.asked("sacctmgr").has_value());
  }
}

TEST_CASE("a site that does not answer is unreachable, with what was said") {
  const FakeSlurm slurm;
  CHECK(fault_of_asking() ==
        "sinfo: it is not there or cannot be started; is this a host of a Slurm cluster?");
  slurm.add("sinfo",
            "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' "
            ">&2; exit 1");
  CHECK(fault_of_asking() ==
        "sinfo: slurm_load_partitions: Unable to contact slurm controller (connect failure)");
  slurm.add("sinfo",
            "echo 'sinfo: error: ClusterName needs to be specified' >&2; echo 'sinfo: fatal: "
            "Unable to process configuration file' >&2; exit 1");
  CHECK(fault_of_asking() == "sinfo: ClusterName needs to be specified");
  slurm.add("sinfo", "sleep 60");
  CHECK(fault_of_asking(0.3) == "sinfo: no answer within its time");
  slurm.prints("sinfo", kNodes);
  slurm.add(
      "scontrol",
      "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)' "
      ">&2; exit 1");
  CHECK(fault_of_asking().starts_with("scontrol: slurm_load_ctl_conf error: Unable to contact"));
}
