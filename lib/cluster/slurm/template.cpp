// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/text.h"
#include "lib/cluster/slurm/partition.h"
#include "lib/hardware/gpu_type.h"
#include "lib/sweep/duration.h"

namespace tessera::cluster {

namespace {

// The text without what would end a comment.
std::string in_comment(std::string text) {
  std::ranges::replace_if(text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return text;
}

// A scalar that YAML reads as this text, in a block or in a flow.
std::string yaml_text(const std::string& text) {
  constexpr std::array<std::string_view, 9> kWords = {"null", "true", "false", "yes", "no",
                                                      "on",   "off",  "y",     "n"};
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '/';
  };
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const bool begins_well = !lower.empty() && ((lower[0] >= 'a' && lower[0] <= 'z') ||
                                              lower[0] == '/' || lower[0] == '_');
  if (begins_well && std::ranges::all_of(text, is_plain) &&
      std::ranges::find(kWords, lower) == kWords.end())
    return text;
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') quoted += '\\';
    if (byte < ' ' || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// "a, b, c and 7 more", for a comment.
std::string listed(std::vector<std::string> names) {
  constexpr std::size_t kMostNames = 20;
  const std::size_t more = names.size() > kMostNames ? names.size() - kMostNames : 0;
  names.resize(names.size() - more);
  return in_comment(fmt::format("{}{}", fmt::join(names, ", "),
                                more > 0 ? fmt::format(" and {} more", more) : ""));
}

// "04:00:00", as cluster files and Slurm take it; of more than four days too.
std::string clock_text(std::int64_t seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  return fmt::format("{:02}:{:02}:{:02}", seconds / kHour, seconds / kMinute % kMinute,
                     seconds % kMinute);
}

constexpr std::int64_t kMostOfFile = 1 << 20;  // of counts that a cluster file takes
constexpr std::size_t kMostNames = 20;         // of partitions that are merely mentioned

// Writes the file line by line into draft_.yaml. The other members of draft_ say what was set and
// what was left open.
class Writer {
 public:
  Writer(const SlurmSite& site, const hardware::Catalogue& catalogue,
         const TemplateChoices& choices)
      : site_(site),
        catalogue_(catalogue),
        choices_(choices),
        partitions_(partitions_of(site)),
        partition_(choose_partition(partitions_, choices.partition)) {}

  SlurmTemplate write() {
    if (partition_ != nullptr) {
      draft_.partition = partition_->name;
      draft_.nodes = partition_->nodes;
    }
    write_head();
    write_gpus();
    write_slurm();
    write_rest();
    return std::move(draft_);
  }

 private:
  // A line of the file, its comment in a column of its own where there is room.
  void line(const std::string& text, const std::string& comment = {}) {
    constexpr std::size_t kColumn = 43;
    if (comment.empty()) {
      draft_.yaml += text + "\n";
    } else {
      draft_.yaml += fmt::format("{:<{}}# {}\n", text.size() < kColumn ? text : text + "  ",
                                 kColumn, in_comment(comment));
    }
  }
  // Set, or commented out with an example in its place.
  void key(bool is_set, const std::string& text, const std::string& example,
           const std::string& comment) {
    line(is_set ? "  " + text : "  # " + example, comment);
  }

  void write_head() {
    const std::string doctor = fmt::format("`submit doctor -c {}`", choices_.name);
    line(
        fmt::format("# {}{}, as sinfo and scontrol show it: `submit init` wrote this, from here on "
                    "it is yours.",
                    site_.name.empty() ? "A cluster" : "Cluster " + in_comment(site_.name),
                    site_.version.empty() ? "" : " with Slurm " + in_comment(site_.version)));
    line(fmt::format("# `submit -c {}` plans and runs on it; {} checks that it holds.",
                     choices_.name, doctor));
    line(
        "# Keys behind a # are not set. What is not set is not asked for: Slurm's own defaults "
        "hold.");
    line("tessera_cluster: 1");
    line("kind: slurm");
    line("");
    line(
        "# Run folders, logs, the ledger. One absolute path, the same on login and compute nodes:");
    line(fmt::format("# {} checks that they see it.", doctor));
    line("workspace: " + yaml_text(choices_.workspace));
    line("");
    line(
        "# The trainer on the nodes, which must see it under this path too, with what lies beside "
        "it;");
    line(fmt::format("# {} checks that as well.", doctor));
    line("trainer:");
    line("  path: " + yaml_text(choices_.trainer));
    line("  # image: /shared/images/tessera.sqsh",
         "with pyxis: a .sqsh file or REGISTRY#IMAGE:TAG that has `sh`; path is inside it");
    line("  # mounts: [/shared]", "of the image: they must hold the workspace");
    line("  # modules: [cuda/13.0]", "loaded before");
  }

  // Returns the text of an entry: h100: {per_node: 8, nodes: 4, request: gres, gres: "gpu:h100"}.
  std::string entry(const std::string& name, const PartitionGpu& gpu) const {
    return fmt::format("{}: {{per_node: {}, nodes: {}, request: gres, gres: {}}}", yaml_text(name),
                       std::min(gpu.per_node, kMostOfFile), std::min(gpu.nodes, kMostOfFile),
                       yaml_text(gpu.gres()));
  }

  // Writes a comment line among the entries of `gpus`.
  void note(const std::string& text) { line("  # " + in_comment(text)); }

  void write_gpus() {
    line("");
    line("# What can be asked for, by its name in the GPU catalogue, or cpu. Of each:");
    line("#   per_node: 8                          devices of a node; of cpu, ranks");
    line(
        "#   nodes: 64                            as many as there are: larger points are dropped "
        "from the plan");
    line(
        "#   request: gres                        --gres=gpu:h100:8 | gpus-per-node: "
        "--gpus-per-node=h100:8 | none");
    line("#   gres: \"gpu:h100\"                     Slurm's name; left out: gpu");
    line(
        "#   constraint: hgx                      --constraint: a feature that the nodes must "
        "have");
    line(
        "#   expect: [\"NVIDIA H100 80GB HBM3\"]    what the driver may call it; else the run ends "
        "before step one");
    line("gpus:");
    if (partition_ != nullptr) write_gpus_of(partition_->gpus);
    write_cpu();
  }

  // What is certain first, then what needs a person.
  void write_gpus_of(const std::vector<PartitionGpu>& gpus) {
    std::vector<std::pair<const PartitionGpu*, hardware::GpuTypeMeaning>> later;
    for (const PartitionGpu& gpu : gpus) {
      hardware::GpuTypeMeaning meaning = hardware::meaning_of_type(catalogue_, gpu.type);
      if (meaning.entries.size() == 1 && names_.insert(meaning.entries.front()->name).second) {
        draft_.gpus.push_back(meaning.entries.front()->name);
        line("  " + entry(draft_.gpus.back(), gpu));
        write_more_of(gpu);
      } else {
        later.emplace_back(&gpu, std::move(meaning));
      }
    }
    // These entries are comment lines: a guess would give the figures of another device.
    for (const auto& [gpu, meaning] : later) {
      draft_.open.push_back(gpu->gres());
      const std::string has = fmt::format("{} ({} a node)", gpu->gres(), gpu->per_node);
      if (meaning.entries.empty()) {
        write_unknown(*gpu, has, meaning);
      } else if (meaning.entries.size() == 1) {
        const std::string& name = meaning.entries.front()->name;
        note(
            fmt::format("{} is {} too, and a file has one entry of a name: these nodes need a "
                        "cluster file of their own.",
                        has, name));
        note(entry(name, *gpu));
      } else {
        write_candidates(*gpu, has, meaning);
      }
      write_more_of(*gpu);
    }
  }

  // Returns a sentence that says how a person finds out which GPU it is.
  std::string how_to_tell() const {
    return fmt::format(
        "Once it is set, `submit doctor -c {}` says what the driver calls it and whether that "
        "fits; "
        "`nvidia-smi -L` on a node tells too.",
        choices_.name);
  }

  // Writes one commented entry for each GPU that Slurm's type may mean.
  void write_candidates(const PartitionGpu& gpu, const std::string& has,
                        const hardware::GpuTypeMeaning& meaning) {
    note(fmt::format(
        "{} may be any of these, and a wrong one gives a wrong MFU: take the # from the "
        "one that it is.",
        has));
    note(how_to_tell());
    for (const hardware::Gpu* candidate : meaning.entries)
      line("  # " + in_comment(entry(candidate->name, gpu)),
           fmt::format("driver: {}", fmt::join(candidate->match, " or ")));
  }

  // Few in one line, a whole catalogue below it.
  void write_near(const std::vector<std::string>& names) {
    constexpr std::size_t kFew = 6;
    constexpr std::size_t kWidth = 100;
    if (names.empty()) return;
    const std::string how = "Then take the # from its line below, with that for NAME.";
    if (names.size() <= kFew) {
      note(fmt::format("Is it one of {}? {}", listed(names), how));
      return;
    }
    note(fmt::format("Is it one of these? {}", how));
    std::string row;
    for (const std::string& name : names) {
      if (!row.empty() && row.size() + name.size() + 2 > kWidth) {
        note("  " + row + ",");
        row.clear();
      }
      row += (row.empty() ? "" : ", ") + name;
    }
    note("  " + row);
  }

  // Writes what to do with a type that fits no entry of the catalogue: similar entries, and how to
  // describe the GPU in a catalogue file.
  void write_unknown(const PartitionGpu& gpu, const std::string& has,
                     const hardware::GpuTypeMeaning& meaning) {
    std::vector<std::string> near;
    for (const hardware::Gpu* relative : meaning.relatives) near.push_back(relative->name);
    if (gpu.type.empty()) {
      for (const hardware::Gpu& any : catalogue_.gpus) near.push_back(any.name);
      note(fmt::format("{}: Slurm does not say which GPU that is.", has));
      if (partition_->gpus.size() > 1)
        note(
            "It gives any GPU of the partition for this name: constraint or nodelist must tell "
            "them apart.");
    } else if (meaning.is_slice) {
      note(fmt::format("{} is a part of a GPU (MIG); the catalogue has whole ones.", has));
    } else {
      note(fmt::format("{} is none that the catalogue has by this name.", has));
    }
    if (!meaning.is_slice) note(how_to_tell());
    write_near(near);
    note(fmt::format(
        "{}, describe it in a file like {} and give --gpu-catalogue FILE to each submit{}",
        near.empty() ? "To use it" : "Is it none of them", is_described_ ? "the one above" : "this",
        is_described_ ? "." : ":"));
    // The example of a catalogue file is written once. Later GPUs refer to it.
    if (!is_described_) {
      note("  tessera_gpus: 1");
      note("  NAME: {match: [\"^WHAT THE DRIVER SAYS$\"], memory_gib: 79.6, reserve_gib: 2,");
      note("         peak_tflops: {fp32: 67, amp_bf16: 989.5}, source: \"data sheet, dense\"}");
    }
    is_described_ = true;
    note(entry("NAME", gpu));
  }

  // Writes the nodes that have fewer of these GPUs, and the features that `constraint` can name.
  void write_more_of(const PartitionGpu& gpu) {
    if (!gpu.fewer.empty()) {
      std::vector<std::string> parts;
      for (const auto& [count, nodes] : gpu.fewer)
        parts.push_back(fmt::format("{} with {}", counted(nodes, "node"), count));
      note(
          fmt::format("Not counted, for they have fewer: {}. Only runs that ask a node for as few "
                      "start there.",
                      listed(parts)));
    }
    if (!gpu.features.empty())
      note(fmt::format("Features of {} for constraint: {}", gpu.gres(), listed(gpu.features)));
  }

  // Writes the entry of a CPU. It has no `nodes` if the partition is not known.
  void write_cpu() {
    const std::int64_t nodes = partition_ != nullptr ? partition_->nodes : 0;
    const std::string count =
        nodes > 0 ? fmt::format(", nodes: {}", std::min(nodes, kMostOfFile)) : std::string();
    const std::int64_t cpus = partition_ != nullptr ? partition_->cpus : 0;
    line(fmt::format("  cpu: {{per_node: 1{}}}", count),
         cpus > 0 ? fmt::format("one rank a node; its threads, of {} CPUs, say --set threads={}",
                                cpus, cpus)
                  : std::string("one rank a node; its threads says --set threads=16"));
  }

  // Says whether the file has named the GPUs already.
  enum class Gpus : std::uint8_t { are_known, are_news };

  // Returns "4 nodes (4 of 8 gpu:h100), at most 04:00:00 a job, not up".
  static std::string size_of(const Partition& partition, Gpus gpus_are = Gpus::are_news) {
    std::string text = counted(partition.nodes, "node");
    std::vector<std::string> gpus;
    for (const PartitionGpu& gpu : partition.gpus)
      gpus.push_back(fmt::format("{} of {} {}", gpu.nodes, gpu.per_node, gpu.gres()));
    if (!gpus.empty() && gpus_are == Gpus::are_news) text += fmt::format(" ({})", listed(gpus));
    if (partition.max_time_s)
      text += fmt::format(", at most {} a job", clock_text(*partition.max_time_s));
    if (!partition.is_up) text += ", not up";
    return text;
  }

  // Writes the partition that is set, then at most kMostNames others as comments.
  void write_partitions() {
    if (partition_ == nullptr) {
      line("  # partition: gpu", "sinfo showed none");
      return;
    }
    std::vector<std::string> states;
    for (const auto& [state, nodes] : partition_->states)
      states.push_back(fmt::format("{} {}", nodes, state.empty() ? "unknown" : state));
    line("  partition: " + yaml_text(partition_->name),
         fmt::format("{}{}{}", partition_->is_default ? "the default: " : "",
                     size_of(*partition_, Gpus::are_known),
                     states.empty() ? "" : fmt::format("; now {}", listed(states))));
    std::size_t shown = 0;
    for (const Partition& other : partitions_) {
      if (&other == partition_) continue;
      if (shown++ == kMostNames) {
        line(fmt::format("  # ... and {} more: sinfo -s", partitions_.size() - 1 - kMostNames));
        break;
      }
      line("  # partition: " + in_comment(yaml_text(other.name)),
           (other.is_default ? "the default: " : "") + size_of(other));
    }
  }

  // CPUs for each GPU that every kind of node has, and how that was found; 0: not known.
  std::pair<std::int64_t, std::string> cpus_per_gpu() const {
    std::int64_t least = 0;
    std::string how;
    if (partition_ == nullptr) return {least, how};
    std::set<std::int64_t> differing;
    for (const PartitionGpu& gpu : partition_->gpus) {
      const std::int64_t each = gpu.cpus / gpu.per_node;
      if (each == 0) continue;
      differing.insert(each);
      if (least != 0 && each >= least) continue;
      least = each;
      how = fmt::format("{} CPUs / {} {}", gpu.cpus, gpu.per_node, gpu.gres());
    }
    if (differing.size() > 1) how += ", the fewest of these nodes";
    return {std::min(least, kMostOfFile), how};
  }

  // Writes the section `slurm`: values that the site told, and examples for the rest.
  void write_slurm() {
    line("");
    line("slurm:");
    write_partitions();
    const std::string yours = site_.accounts.empty()
                                  ? std::string("left out: your default")
                                  : fmt::format("yours: {}", listed(site_.accounts));
    key(!site_.default_account.empty(), "account: " + yaml_text(site_.default_account),
        "account: bench", yours);
    line("  # qos: " + in_comment(site_.qos.empty() ? "normal" : yaml_text(site_.qos.front())),
         site_.qos.empty() ? std::string("left out: your default")
                           : fmt::format("yours: {}; left out: your default", listed(site_.qos)));
    line("  # reservation: night");
    line("  # nodelist: \"n[01-08]\"", "only these nodes");
    line("  # exclude: [n17]", "not these");
    line("  exclusive: true", "whole nodes: neighbours share memory and links, and spoil figures");
    key(site_.limits_memory, "mem: \"0\"", "mem: \"0\"",
        site_.limits_memory
            ? "all memory of the node: a job that asks for none is held to the site's default"
            : "all memory of the node; this site holds no job to what it asked for");
    const auto [cpus, how] = cpus_per_gpu();
    key(cpus > 0, fmt::format("cpus_per_gpu: {}", cpus), "cpus_per_gpu: 12",
        fmt::format("--cpus-per-task: {}; of a CPU run its threads",
                    how.empty() ? "CPUs of a node / its GPUs" : how));
    line("  # bind: numa",
         "--cpu-bind=ldoms --mem-bind=local | none: --cpu-bind=none | left out: Slurm's");
    line("  # extra: [\"--switches=1\"]", "further #SBATCH lines");
    line("  # prologue: |", "lines of bash before the first run");
    line("  #   ulimit -l unlimited");
  }

  // Writes env, identity, time and limits.
  void write_rest() {
    line("");
    line("# env: {NCCL_IB_HCA: mlx5}",
         "of every run; TESSERA_INTERFACE: ib0, where CPU ranks meet");
    line("# identity: [env]", "what of this file makes a point another point");
    line("");
    line("time:");
    line("  startup_s: 300", "before step one: what a run's time limit has for it");
    const std::int64_t most = partition_ != nullptr ? partition_->max_time_s.value_or(0) : 0;
    const std::string text = clock_text(most);
    const bool is_limited = sweep::parse_duration(text).has_value();
    key(is_limited, fmt::format("max: \"{}\"", text), "max: \"04:00:00\"",
        is_limited ? "the partition's limit: a job that asks for more would wait for ever"
                   : "the longest that a run is given; this partition has no limit");
    line("");
    line("limits:");
    constexpr std::int64_t kInFlight = 32;
    const bool is_tight = site_.max_jobs > 0 && site_.max_jobs < kInFlight;
    line(fmt::format("  max_in_flight: {}", is_tight ? site_.max_jobs : kInFlight),
         fmt::format(
             "jobs of yours at once{}",
             site_.max_jobs > 0
                 ? fmt::format("; this cluster holds {} of all users (MaxJobCount)", site_.max_jobs)
                 : ""));
    line("  rate_per_s: 5", "submissions");
    line("  array: never",
         fmt::format("auto: runs of one shape as an array{}; not beside max_in_flight",
                     site_.max_array_size > 0
                         ? fmt::format(", of {} at most (MaxArraySize)", site_.max_array_size)
                         : ""));
    line("  poll_s: 30", "between two questions to the controller");
    line("  lookup_s: 60", "how long a job whose reply got lost is looked for");
  }

  const SlurmSite& site_;
  const hardware::Catalogue& catalogue_;
  const TemplateChoices& choices_;
  std::vector<Partition> partitions_;
  const Partition* partition_;
  std::set<std::string> names_;  // of entries that are set
  bool is_described_ = false;    // how an entry of the catalogue looks
  SlurmTemplate draft_;
};

}  // namespace

SlurmTemplate slurm_template(const SlurmSite& site, const hardware::Catalogue& catalogue,
                             const TemplateChoices& choices) {
  return Writer(site, catalogue, choices).write();
}

}  // namespace tessera::cluster
