// SPDX-License-Identifier: Apache-2.0
// The cluster file that is drafted for a site: one whole (tests/data/slurm/init.yaml;
// TESSERA_WRITE_GOLDEN=1 writes it anew), what holds for each choice, what holds for any site.
#include "lib/cluster/slurm/template.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/cluster/cluster_file.h"
#include "lib/cluster/slurm/partition.h"
#include "lib/hardware/gpu_type.h"

using namespace tessera;
using namespace tessera::cluster;

namespace {

const hardware::Catalogue& catalogue() {
  static const hardware::Catalogue all = hardware::built_in_catalogue();
  return all;
}

SlurmSite site_of(const std::string& sinfo) {
  return {.version = "22.05.8",
          .name = "dev",
          .has_accounting = true,
          .limits_memory = true,
          .max_array_size = 1001,
          .max_jobs = 10000,
          .nodes = parse_sinfo(sinfo),
          .accounts = {"bench", "root"},
          .default_account = "bench",
          .qos = {"normal", "tiny"}};
}

const TemplateChoices kChoices{
    .name = "hgx", .workspace = "/shared/bench/runs", .trainer = "/shared/tessera/bin/trainer"};

SlurmTemplate draft(const SlurmSite& site, const TemplateChoices& choices = kChoices) {
  return slurm_template(site, catalogue(), choices);
}
SlurmTemplate draft(const std::string& sinfo, const std::string& partition = {}) {
  TemplateChoices choices = kChoices;
  choices.partition = partition;
  return draft(site_of(sinfo), choices);
}

Cluster read(const std::string& yaml) {
  return parse_cluster(parse_yaml(yaml, "hgx.yaml"), "hgx.yaml");
}

const GpuEntry* gpu_of(const Cluster& cluster, const std::string& name) {
  const auto found = std::ranges::find(cluster.gpus, name, &GpuEntry::name);
  return found == cluster.gpus.end() ? nullptr : &*found;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The file with these keys' lines set: every commented line of them loses its "# ".
std::string with_keys_set(const std::string& yaml, const std::set<std::string>& keys) {
  static const std::regex kCommented("^( *)# ([a-z0-9_]+)(:.*)$");
  std::string result;
  bool in_block = false;
  for (const std::string& line : lines_of(yaml)) {
    std::smatch parts;
    const bool is_block_line = in_block && line.starts_with("  #   ");
    in_block = is_block_line;
    if (is_block_line) {
      result += "  " + line.substr(4) + "\n";
    } else if (std::regex_match(line, parts, kCommented) && keys.contains(parts[2])) {
      result += parts[1].str() + parts[2].str() + parts[3].str() + "\n";
      in_block = holds(line, ": |");
    } else {
      result += line + "\n";
    }
  }
  return result;
}

constexpr const char* kB200 = "gpu*|up|2-00:00:00|16|idle|128|2063000|gpu:b200:8(S:0-1)|hgx,ib\n";
constexpr const char* kMixed =
    "main*|up|1:00:00|1|drained|16|64000|gpu:4|(null)\n"
    "main*|up|1:00:00|1|idle|16|64000|gpu:a100-sxm4-80gb:8(S:0-1),nic:2|hgx,ib\n"
    "main*|up|1:00:00|3|idle|16|64000|gpu:a100:4,gpu:a100_3g.20gb:4|(null)\n"
    "main*|up|1:00:00|2|idle|16|64000|gpu:a100-sxm4-80gb:4|(null)\n"
    "main*|up|1:00:00|1|idle|16|64000|(null)|(null)\n"
    "small|up|5:00|1|idle|16|64000|gpu:a100-sxm4-80gb:8(S:0-1),nic:2|hgx,ib\n"
    "old|down|infinite|2|down*|16|64000|gpu:v100:4|(null)\n";

}  // namespace

TEST_CASE("the whole file of a site with many kinds of nodes") {
  const SlurmTemplate made = draft(kMixed);
  const std::filesystem::path path = "tests/data/slurm/init.yaml";
  if (std::getenv("TESSERA_WRITE_GOLDEN") != nullptr) write_file_atomically(path, made.yaml);
  CHECK(read_file(path) == made.yaml);
  CHECK(made.partition == "main");
  CHECK(made.nodes == 8);
  CHECK(made.gpus == std::vector<std::string>{"a100_80gb"});
  CHECK(made.open == std::vector<std::string>{"gpu:a100", "gpu:a100_3g.20gb", "gpu"});
}

TEST_CASE("what a certain site has is set") {
  const SlurmTemplate made = draft(kB200);
  const Cluster cluster = read(made.yaml);
  CHECK(cluster.kind == Kind::slurm);
  CHECK(cluster.workspace == "/shared/bench/runs");
  CHECK(cluster.trainer.path == "/shared/tessera/bin/trainer");
  REQUIRE(cluster.gpus.size() == 2);
  CHECK(cluster.gpus[0].name == "b200");
  CHECK(cluster.gpus[0].per_node == 8);
  CHECK(cluster.gpus[0].nodes == 16);
  CHECK(cluster.gpus[0].request == "gres");
  CHECK(cluster.gpus[0].gres == "gpu:b200");
  CHECK(cluster.gpus[1].name == "cpu");
  CHECK(cluster.gpus[1].per_node == 1);
  CHECK(cluster.gpus[1].nodes == 16);
  CHECK(cluster.slurm.partition == "gpu");
  CHECK(cluster.slurm.account == "bench");
  CHECK(cluster.slurm.qos.empty());
  CHECK(cluster.slurm.exclusive);
  CHECK(cluster.slurm.mem == "0");
  CHECK(cluster.slurm.cpus_per_gpu == 16);
  CHECK(cluster.max_time_s == 2 * 86400);
  CHECK(cluster.max_in_flight == 32);
  CHECK(made.open.empty());
  for (const char* part : {"yours: bench, root", "yours: normal, tiny", "MaxArraySize", "1001",
                           "MaxJobCount", "10000", "hgx, ib", "submit doctor -c hgx"}) {
    CAPTURE(part);
    CHECK(holds(made.yaml, part));
  }
}

TEST_CASE("what a site does not have is not set") {
  SlurmSite site = site_of("batch*|up|infinite|3|idle|64|256000|(null)|(null)\n");
  site.limits_memory = site.has_accounting = false;
  site.accounts.clear();
  site.default_account.clear();
  site.qos.clear();
  site.max_jobs = 10;
  const Cluster cluster = read(draft(site).yaml);
  REQUIRE(cluster.gpus.size() == 1);
  CHECK(cluster.gpus[0].name == "cpu");
  CHECK(cluster.gpus[0].nodes == 3);
  CHECK(cluster.slurm.account.empty());
  CHECK(cluster.slurm.mem.empty());
  CHECK(cluster.slurm.cpus_per_gpu == 0);
  CHECK_FALSE(cluster.max_time_s.has_value());
  CHECK(cluster.max_in_flight == 10);
}

TEST_CASE("which partition") {
  const std::string cpu = "cpu*|up|infinite|9|idle|64|1|(null)|(null)\n";
  const std::string few = "few|up|infinite|2|idle|64|1|gpu:b200:8|(null)\n";
  const std::string many =
      "many|up|infinite|2|idle|64|1|gpu:b200:8|(null)\nmany|up|infinite|1|idle|64|1|gpu:b200:4|a\n";
  CHECK(draft(cpu).partition == "cpu");
  CHECK(draft(cpu + few + many).partition == "many");
  CHECK(draft(cpu + many + few).partition == "many");
  CHECK(draft(cpu + few + many, "few").partition == "few");
  CHECK(draft(cpu + few + many, "cpu").partition == "cpu");
  // The default one where it has GPUs, however few.
  CHECK(draft("d*|up|infinite|1|idle|64|1|gpu:b200:1|(null)\n" + many).partition == "d");
  // With no default and no GPU the first.
  CHECK(draft("a|up|infinite|1|idle|64|1|(null)|(null)\nb|up|1|9|idle|64|1|(null)|(null)\n")
            .partition == "a");
  // What starts no jobs only if nothing does, or if it was asked for.
  const std::string down = "d*|down|infinite|99|idle|64|1|gpu:b200:8|(null)\n";
  CHECK(draft(down + few).partition == "few");
  CHECK(draft(down).partition == "d");
  CHECK(draft(down + few, "d").partition == "d");
  // GPUs that no node has make no partition of GPUs.
  CHECK(draft(cpu + "e|up|infinite|0|n/a|0|0|gpu:b200:8|(null)\n").partition == "cpu");
  const SlurmTemplate none = draft("");
  CHECK(none.partition.empty());
  CHECK(read(none.yaml).slurm.partition.empty());
  try {
    draft(cpu + few, "gpus");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::usage);
    CHECK(std::string(error.what()) ==
          "--partition: there is no partition 'gpus'; one of cpu, few");
  }
}

TEST_CASE("other partitions stand beside the one that is taken, with their sizes") {
  const std::string yaml = draft(kMixed).yaml;
  CHECK(holds(yaml,
              "  # partition: small                       # 1 node (1 of 8 "
              "gpu:a100-sxm4-80gb), at most 00:05:00 a job\n"));
  CHECK(holds(yaml,
              "  # partition: old                         # 2 nodes (2 of 4 gpu:v100), not "
              "up\n"));
  std::string many;
  for (int i = 0; i < 100; ++i) many += fmt::format("p{}|up|1:00|1|idle|1|1|(null)|(null)\n", i);
  const std::string of_many = draft(many).yaml;
  CHECK(holds(of_many, "# partition: p20 "));
  CHECK_FALSE(holds(of_many, "# partition: p21 "));
  CHECK(holds(of_many, "and 79 more"));
}

TEST_CASE("a GPU that may be several is guessed by no one: one # less chooses") {
  struct Several {
    std::string type;
    std::vector<std::string> names;
  };
  for (const auto& [type, names] : {Several{"a100", {"a100_40gb", "a100_80gb"}},
                                    {"h100", {"h100_80gb", "h100_pcie", "h100_nvl"}},
                                    {"h200", {"h200", "h200_nvl"}},
                                    {"gh200", {"gh200_96gb", "gh200_144gb"}},
                                    {"v100_32gb", {"v100_sxm2_32gb", "v100_pcie_32gb"}}}) {
    CAPTURE(type);
    const SlurmTemplate made =
        draft(fmt::format("gpu*|up|infinite|2|idle|64|1|gpu:{}:4|(null)\n", type));
    CHECK(made.gpus.empty());
    CHECK(made.open == std::vector<std::string>{"gpu:" + type});
    CHECK(read(made.yaml).gpus.size() == 1);
    CHECK(holds(made.yaml, "`submit doctor -c hgx` says what the driver calls it"));
    for (const std::string& name : names) {
      CAPTURE(name);
      const Cluster cluster = read(with_keys_set(made.yaml, {name}));
      const GpuEntry* gpu = gpu_of(cluster, name);
      REQUIRE(gpu != nullptr);
      CHECK(cluster.gpus.size() == 2);
      CHECK(gpu->per_node == 4);
      CHECK(gpu->nodes == 2);
      CHECK(gpu->gres == "gpu:" + type);
    }
  }
}

TEST_CASE("Slurm's name of a GPU that is one entry is set") {
  for (const auto& [type, name] :
       {std::pair("a10", "a10"),
        {"a10g", "a10g"},
        {"l40s", "l40s"},
        {"rtx4090", "rtx_4090"},
        {"tesla_t4", "t4"},
        {"nvidia_h200", "h200"},
        {"nvidia_h100_nvl", "h100_nvl"},
        {"nvidia_gh200_480gb", "gh200_96gb"},
        {"tesla_v100-sxm2-32gb", "v100_sxm2_32gb"},
        {"nvidia_rtx_pro_6000_blackwell_server_edition", "rtx_pro_6000_blackwell_server"}}) {
    CAPTURE(std::string(type));
    const SlurmTemplate made =
        draft(fmt::format("gpu*|up|infinite|2|idle|64|1|gpu:{}:4|(null)\n", type));
    CHECK(made.open.empty());
    CHECK(made.gpus == std::vector<std::string>{name});
    const Cluster cluster = read(made.yaml);
    REQUIRE(gpu_of(cluster, name) != nullptr);
    CHECK(gpu_of(cluster, name)->gres == fmt::format("gpu:{}", type));
  }
}

TEST_CASE("where no entry fits, those that it may be are named: few in a line, all below one") {
  const auto yaml_of = [](const std::string& gres) {
    return draft(fmt::format("gpu*|up|infinite|2|idle|64|1|{}|(null)\n", gres)).yaml;
  };
  CHECK(holds(yaml_of("gpu:rtx_4090_d:8"), "# Is it one of rtx_4090? Then take the #"));
  CHECK_FALSE(holds(yaml_of("gpu:mi300x:8"), "Is it one of"));
  const std::string untyped = yaml_of("gpu:8");
  CHECK(holds(untyped, "# Is it one of these? Then take the #"));
  for (const hardware::Gpu& gpu : catalogue().gpus) {
    CAPTURE(gpu.name);
    CHECK(std::regex_search(untyped, std::regex(fmt::format("  #   (.*, )?{}(,|\n)", gpu.name))));
  }
}

TEST_CASE("a GPU that no entry is says how to add one") {
  for (const auto& [gres, type] : {std::pair("gpu:mi300x:8", "gpu:mi300x"),
                                   {"gpu:a100_3g.20gb:8", "gpu:a100_3g.20gb"},
                                   {"gpu:8", "gpu"},
                                   {"gpu:h20_3e:8", "gpu:h20_3e"}}) {
    CAPTURE(gres);
    const SlurmTemplate made = draft(fmt::format("gpu*|up|infinite|2|idle|64|1|{}|(null)\n", gres));
    CHECK(made.gpus.empty());
    CHECK(made.open == std::vector<std::string>{type});
    CHECK(holds(made.yaml, "--gpu-catalogue FILE"));
    // The line as it stands, with a name in the place of NAME.
    std::string yaml = made.yaml;
    const std::size_t at = yaml.find("  # NAME: {per_node");
    REQUIRE(at != std::string::npos);
    yaml.replace(at, 8, "  mine");
    const Cluster cluster = read(yaml);
    REQUIRE(gpu_of(cluster, "mine") != nullptr);
    CHECK(gpu_of(cluster, "mine")->gres == type);
  }
  // The entry of the catalogue that the comment shows is one.
  std::string described;
  for (const std::string& line :
       lines_of(draft("gpu*|up|infinite|2|idle|64|1|gpu:mi300x:8|(null)\n").yaml)) {
    if (holds(line, "tessera_gpus") || holds(line, "NAME: {match") || holds(line, "peak_tflops"))
      described += line.substr(line.find('#') + 4) + "\n";
  }
  const hardware::Catalogue added = hardware::parse_catalogue(parse_yaml(described, "more.yaml"));
  REQUIRE(added.gpus.size() == 1);
  CHECK(added.gpus[0].name == "NAME");
}

TEST_CASE(
    "nodes that differ in GPUs: the largest count, and nothing asks for more CPUs than all have") {
  const SlurmTemplate made = draft(
      "gpu*|up|infinite|5|idle|64|1|gpu:b200:4|(null)\n"
      "gpu*|up|infinite|2|mixed|96|1|gpu:b200:8|(null)\n"
      "gpu*|up|infinite|1|down*|128|1|gpu:b200:8|(null)\n"
      "gpu*|up|infinite|3|idle|64|1|gpu:nvidia_a100-sxm4-80gb:8|(null)\n");
  const Cluster cluster = read(made.yaml);
  const GpuEntry* gpu = gpu_of(cluster, "b200");
  REQUIRE(gpu != nullptr);
  CHECK(gpu->per_node == 8);
  CHECK(gpu->nodes == 3);
  CHECK(holds(made.yaml, "5 nodes with 4"));
  REQUIRE(gpu_of(cluster, "a100_80gb") != nullptr);
  CHECK(gpu_of(cluster, "a100_80gb")->gres == "gpu:nvidia_a100-sxm4-80gb");
  CHECK(cluster.slurm.cpus_per_gpu == 8);
  CHECK(gpu_of(cluster, "cpu")->nodes == 11);
  CHECK(holds(made.yaml, "now 1 down*, 8 idle, 2 mixed"));
}

TEST_CASE("two of Slurm's types that are one GPU do not make one entry twice") {
  const SlurmTemplate made = draft(
      "gpu*|up|infinite|2|idle|64|1|gpu:b200:8|(null)\n"
      "gpu*|up|infinite|5|idle|64|1|gpu:nvidia_b200:8|(null)\n");
  CHECK(made.gpus == std::vector<std::string>{"b200"});
  CHECK(made.open == std::vector<std::string>{"gpu:b200"});
  const Cluster cluster = read(made.yaml);
  CHECK(gpu_of(cluster, "b200")->gres == "gpu:nvidia_b200");
  CHECK(holds(made.yaml, "a cluster file of their own"));
}

TEST_CASE("every key that the example explains stands in the file, set or not") {
  static const std::regex kKey(R"(^ *(?:# )?([a-z0-9_]+):( .*)?$)");
  static const std::regex kMembers(R"(([a-z_]+):)");
  std::set<std::string> keys;
  for (const std::string& line : lines_of(read_file("yamls/clusters/slurm-example.yaml"))) {
    std::smatch parts;
    if (std::regex_match(line, parts, kKey)) keys.insert(parts[1]);
  }
  keys.erase("h100_80gb");
  keys.insert({"startup_s", "max"});  // they share a line there
  REQUIRE(keys.size() > 30);
  for (const char* sinfo : {kB200, kMixed, "", "a|up|infinite|1|idle|1|1|(null)|(null)\n"}) {
    const std::string yaml = draft(sinfo).yaml;
    for (const std::string& key : keys) {
      CAPTURE(key);
      const std::regex line(fmt::format(R"((^|\n) *(#? *){0}:|\{{{0}:)", key));
      CHECK(std::regex_search(yaml, line));
    }
  }
}

TEST_CASE("a commented line that loses its # is a key with the value that it shows") {
  SlurmSite site = site_of(kB200);
  site.default_account.clear();
  site.limits_memory = false;
  site.nodes[0].max_time_s.reset();
  const Cluster cluster = read(with_keys_set(
      draft(site).yaml, {"image", "mounts", "modules", "account", "qos", "reservation", "nodelist",
                         "exclude", "mem", "bind", "extra", "prologue", "env", "identity", "max"}));
  CHECK(cluster.trainer.image == "/shared/images/tessera.sqsh");
  CHECK(cluster.trainer.mounts == std::vector<std::string>{"/shared"});
  CHECK(cluster.trainer.modules == std::vector<std::string>{"cuda/13.0"});
  CHECK(cluster.slurm.account == "bench");
  CHECK(cluster.slurm.qos == "normal");
  CHECK(cluster.slurm.reservation == "night");
  CHECK(cluster.slurm.nodelist == "n[01-08]");
  CHECK(cluster.slurm.exclude == std::vector<std::string>{"n17"});
  CHECK(cluster.slurm.mem == "0");
  CHECK(cluster.slurm.bind == "numa");
  CHECK(cluster.slurm.extra == std::vector<std::string>{"--switches=1"});
  CHECK(cluster.slurm.prologue == "ulimit -l unlimited\n");
  CHECK(cluster.env == std::map<std::string, std::string>{{"NCCL_IB_HCA", "mlx5"}});
  CHECK(cluster.identity.size() == 1);
  CHECK(cluster.max_time_s == 4 * 3600);
}

TEST_CASE("any site gives a file that is read, and nothing of it is a guess") {
  std::mt19937 random(20261130);
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::vector<std::string> words = {
      "gpu",       "main",        "a b",       "null",        "true",
      "no",        "~",           "x: y",      "#1",          "a#b",
      "a #b",      "-",           "- a",       "1e3",         "0x1F",
      "007",       "it's",        "\"q\"",     "back\\slash", "{a}",
      "[b]",       "a,b",         "%1",        "@home",       "`x`",
      "*star",     "&anchor",     "!tag",      "|",           ">",
      "?",         "line\nbreak", "tab\there", "größe",       "",
      "trailing ", " leading",    "NAME",      "cpu",         std::string(300, 'l')};
  const std::vector<std::string> types = {"h100",
                                          "h200",
                                          "a100",
                                          "nvidia_b200",
                                          "a100-sxm4-80gb",
                                          "nvidia_h100_80gb_hbm3",
                                          "a100_3g.20gb",
                                          "",
                                          "gpu",
                                          "mi300x",
                                          "x: y",
                                          "\"",
                                          "#",
                                          "line\nbreak",
                                          "cpu",
                                          "H200"};
  const std::vector<std::int64_t> numbers = {
      0, 1, 2, 3, 4, 7, 8, 16, 64, 100000, std::int64_t{1} << 40};
  hardware::Catalogue odd = catalogue();
  odd.gpus.push_back({.name = "x: y", .match = {"^x: y$"}, .memory_gib = 1, .source = "none"});
  const auto word = [&] { return words[below(words.size())]; };
  const auto number = [&] { return numbers[below(numbers.size())]; };
  int with_gpus = 0;
  for (int round = 0; round < 2000; ++round) {
    SlurmSite site{.version = word(),
                   .name = word(),
                   .limits_memory = below(2) == 0,
                   .max_array_size = number(),
                   .max_jobs = number()};
    for (std::size_t i = below(6); i > 0; --i) {
      SlurmNodes nodes{.partition = below(2) == 0 ? "p" : word(),
                       .is_default = below(3) == 0,
                       .is_up = below(3) != 0,
                       .nodes = number(),
                       .state = word(),
                       .cpus = number(),
                       .memory_mib = number()};
      if (below(2) == 0) nodes.max_time_s = number();
      for (std::size_t g = below(4); g > 0; --g)
        nodes.gres.push_back(
            {below(5) == 0 ? word() : "gpu", types[below(types.size())], number()});
      for (std::size_t f = below(3); f > 0; --f) nodes.features.push_back(word());
      site.nodes.push_back(nodes);
    }
    for (std::size_t a = below(30); a > 0; --a) site.accounts.push_back(word());
    if (!site.accounts.empty()) site.default_account = site.accounts.front();
    for (std::size_t q = below(3); q > 0; --q) site.qos.push_back(word());
    const TemplateChoices choices{
        .name = "hgx", .workspace = "/w/" + word(), .trainer = "/t/" + word()};
    const SlurmTemplate made = slurm_template(site, odd, choices);
    CAPTURE(made.yaml);
    Cluster cluster;
    REQUIRE_NOTHROW(cluster = read(made.yaml));
    CHECK(cluster.workspace == choices.workspace);
    CHECK(cluster.trainer.path == choices.trainer);
    CHECK(cluster.slurm.partition == made.partition);
    CHECK(cluster.slurm.account == site.default_account);
    REQUIRE(gpu_of(cluster, "cpu") != nullptr);
    CHECK(cluster.gpus.size() == made.gpus.size() + 1);
    std::size_t kinds = 0;
    for (const Partition& partition : partitions_of(site)) {
      if (partition.name == made.partition) kinds = partition.gpus.size();
    }
    CHECK(made.gpus.size() + made.open.size() == kinds);
    for (const std::string& name : made.gpus) {
      ++with_gpus;
      const std::string& gres = gpu_of(cluster, name)->gres;
      REQUIRE(gres.starts_with("gpu:"));
      const auto meaning = hardware::meaning_of_type(odd, gres.substr(4));
      REQUIRE(meaning.entries.size() == 1);
      CHECK(meaning.entries[0]->name == name);
    }
  }
  CHECK(with_gpus > 300);
}
