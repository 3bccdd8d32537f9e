// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/project/doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/base/text.h"

namespace tessera::submit {

namespace fs = std::filesystem;
using cluster::GpuEntry;
using cluster::JobState;
using cluster::NodeReport;
using Level = Finding::Level;

namespace {

// Returns each text in quotes, with commas between them.
std::string quoted(const std::vector<std::string>& texts) {
  std::string result;
  for (const std::string& text : texts)
    result += fmt::format("{}\"{}\"", result.empty() ? "" : ", ", text);
  return result;
}

// Returns each name once, sorted.
std::vector<std::string> kinds_of(std::vector<std::string> devices) {
  std::ranges::sort(devices);
  const auto same = std::ranges::unique(devices);
  devices.erase(same.begin(), same.end());
  return devices;
}

// The catalogue's entry of a device, or why there is none.
std::string catalogue_name(const hardware::Catalogue& catalogue, const std::string& device,
                           std::string& fault) try {
  const hardware::Gpu* gpu = hardware::match_driver_name(catalogue, device);
  return gpu != nullptr ? gpu->name : "";
} catch (const Error& error) {
  fault = error.what();
  return "";
}

// What the driver calls the devices, against the entry's name and `expect`.
void judge_devices(const GpuEntry& gpu, const NodeReport& report,
                   const hardware::Catalogue& catalogue, std::vector<Finding>& findings) {
  if (report.devices.empty()) {
    findings.push_back({.level = Level::note,
                        .about = gpu.name,
                        .text = fmt::format("{} has no nvidia-smi: which GPU it is, the first run "
                                            "will find out",
                                            report.node)});
    return;
  }
  const std::vector<std::string> kinds = kinds_of(report.devices);
  for (const std::string& device : kinds) {
    std::string fault;
    const std::string name = catalogue_name(catalogue, device, fault);
    if (!gpu.expect.empty() && std::ranges::find(gpu.expect, device) == gpu.expect.end()) {
      findings.push_back(
          {.level = Level::mend,
           .about = gpu.name,
           .text =
               fmt::format("{} has {}, which is not expected: its runs would end before step one",
                           report.node, quoted(kinds)),
           .fix = fmt::format("expect: [{}], or another entry for it", quoted(kinds))});
    } else if (!fault.empty()) {
      findings.push_back({.level = Level::mend, .about = gpu.name, .text = fault, .fix = ""});
    } else if (name.empty()) {
      findings.push_back(
          {.level = Level::mend,
           .about = gpu.name,
           .text = fmt::format("\"{}\" on {} is in no catalogue", device, report.node),
           .fix = "--gpu-catalogue FILE with its memory and peaks"});
    } else if (name != gpu.name) {
      findings.push_back(
          {.level = Level::mend,
           .about = gpu.name,
           .text = fmt::format("{} has \"{}\", which is a {}", report.node, device, name),
           .fix = fmt::format("call the entry {}", name)});
    } else {
      findings.push_back({.level = Level::ok,
                          .about = gpu.name,
                          .text = fmt::format("\"{}\" on {}", device, report.node)});
    }
  }
}

// A folder of its own in the workspace, gone with it.
class Meeting {
 public:
  Meeting(const fs::path& workspace, const std::string& name)
      : folder_(workspace / ".doctor" / name) {
    make_directories(folder_);
    write_file_atomically(folder_ / "here", "");
  }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    fs::remove(folder_.parent_path(), ignored);  // unless another is there
  }
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

// Examines the site, the workspace and a node for each entry of `gpus`. Every finding is reported
// as soon as it is found.
class Examination {
 public:
  Examination(cluster::Scheduler& scheduler, const DoctorOptions& options)
      : scheduler_(scheduler), options_(options), cluster_(scheduler.cluster()) {}

  std::vector<Finding> run() {
    if (!site() || !workspace()) return std::move(findings_);
    for (const GpuEntry& gpu : cluster_.gpus) {
      if (const auto unknown = hardware::unknown_gpu(options_.catalogue, gpu.name))
        add(Level::note, gpu.name, *unknown);
      if (!would_take(gpu) || !options_.asks_nodes) continue;
      node(gpu);
    }
    return std::move(findings_);
  }

 private:
  void add(Finding finding) {
    findings_.push_back(std::move(finding));
    options_.found(findings_.back());
  }
  void add(Level level, const std::string& about, const std::string& text,
           const std::string& fix = {}) {
    add({.level = level, .about = about, .text = text, .fix = fix});
  }
  // An error as a finding.
  void add(const std::string& about, const Error& error) {
    add(error.code() == ExitCode::unreachable ? Level::silent : Level::mend, about, error.what());
  }

  // Examines the site. False if that failed: nothing else is examined then.
  bool site() {
    try {
      cluster::SiteReport site = scheduler_.examine_site(options_.waiting);
      for (Finding& finding : site.findings) add(std::move(finding));
      out_of_service_ = site.nodes_out_of_service;
      return true;
    } catch (const Error& error) {
      add(std::string(to_text(cluster_.kind)), error);
      return false;
    }
  }

  // Makes and removes a folder in the workspace. False if that failed.
  bool workspace() {
    try {
      std::error_code ignored;
      const bool was_there = fs::exists(options_.workspace, ignored);
      const Meeting meeting(options_.workspace, name_of("workspace"));
      const double free_gib =
          static_cast<double>(fs::space(options_.workspace, ignored).available) / (1 << 30);
      add(free_gib < 1 || !was_there ? Level::note : Level::ok, "workspace",
          fmt::format("{} {}can be written here, {:.0f} GiB free", options_.workspace.string(),
                      was_there ? "" : "was not there and was made; it ", free_gib));
      return true;
    } catch (const Error& error) {
      add(Level::mend, "workspace", error.what(), "workspace: a folder that you may write");
      return false;
    }
  }

  // Whether the scheduler would take a job of one device; of as many as a point may have it is
  // asked too.
  bool would_take(const GpuEntry& gpu) {
    // Those that are out of service now are told of, and no fault of the file.
    const std::int64_t nodes = std::max<std::int64_t>(1, gpu.nodes - out_of_service_);
    const std::string fault = refusal(gpu, nodes * gpu.per_node, nodes);
    if (fault.empty()) return true;
    return gpu.per_node * nodes > 1 && refusal(gpu, 1, 1, fault).empty();
  }

  // Asks whether the scheduler would take a job of this size. Returns why not; empty if it would.
  // Tells of it, unless it is `known`.
  std::string refusal(const GpuEntry& gpu, std::int64_t ranks, std::int64_t nodes,
                      const std::string& known = {}) {
    const std::string name = name_of(gpu.name);
    const cluster::Job job{.name = name,
                           .project = "doctor",
                           .runs = {{.run = name,
                                     .run_dir = options_.workspace / ".doctor" / name,
                                     .spec_json = {},
                                     .env = {},
                                     .unset = {}}},
                           .gpu = gpu.name,
                           .ranks = ranks,
                           .nodes = nodes,
                           .after = {}};
    try {
      scheduler_.check(job);
      return {};
    } catch (const Error& error) {
      std::string fault = without_place(error, name);
      if (fault == known) return fault;
      add(error.code() == ExitCode::unreachable ? Level::silent : Level::mend, gpu.name,
          fmt::format("{} on {}: {}", counted(ranks, "rank"), counted(nodes, "node"), fault),
          nodes > 1
              ? "a smaller nodes, or what partition, constraint, nodelist, exclude and mem leave"
              : "");
      return fault;
    }
  }

  // Asks one node of the entry by a job, and judges its answer.
  void node(const GpuEntry& gpu) {
    const std::string name = name_of(gpu.name);
    const double begin_s = monotonic_seconds();
    try {
      const Meeting meeting(options_.workspace, name);
      const NodeReport report =
          scheduler_.probe({.name = name,
                            .gpu = gpu.name,
                            .folder = meeting.folder(),
                            .goes_on = [&](const JobState& state) {
                              const double waited_s = monotonic_seconds() - begin_s;
                              options_.waiting(waiting_text(gpu, state, waited_s));
                              return waited_s < options_.patience_s && !options_.interrupted();
                            }});
      for (Finding& finding : judge_node(gpu, report, options_.catalogue, options_.own_version))
        add(std::move(finding));
      remember(gpu, report);
    } catch (const Error& error) {
      // An interrupt ends the doctor. If only the patience is over, that is a finding.
      if (options_.interrupted())
        throw Error(ExitCode::interrupted, "submit doctor", "interrupted", "its job is taken away");
      if (error.code() != ExitCode::interrupted) {
        add(gpu.name, error);
        return;
      }
      const std::string why = without_place(error, name);
      add(Level::silent, gpu.name,
          fmt::format("no answer from a node within {:.0f} s{}", options_.patience_s,
                      why.empty() ? "" : ": " + why),
          "wait longer: --patience 30m");
    }
  }

  // Returns "a node for h100_80gb: 12 s, waits: Priority".
  static std::string waiting_text(const GpuEntry& gpu, const JobState& state, double waited_s) {
    std::string text = fmt::format("a node for {}: {:.0f} s", gpu.name, waited_s);
    if (state.phase == JobState::Phase::pending) text += ", waits: " + state.reason;
    if (state.phase == JobState::Phase::running) text += ", runs";
    return text;
  }

  // The job's name says nothing to a person.
  static std::string without_place(const Error& error, const std::string& place) {
    return error.where() == place ? error.without_where() : error.what();
  }

  // Remembers what the trainer on the node can do (trainers.h).
  void remember(const GpuEntry& gpu, const NodeReport& report) {
    if (!report.trainer_fault.empty()) return;
    try {
      remember_trainer(cluster_, gpu.name,
                       {.utc = utc_now(),
                        .node = report.node,
                        .version = report.version,
                        .capabilities_json = report.capabilities,
                        .can = parse_capabilities(parse_json(report.capabilities, report.node))});
    } catch (const Error& error) {
      // What is no answer of a trainer's has been told; a state folder that cannot be written has
      // not.
      if (error.code() == ExitCode::io) add(Level::note, gpu.name, error.what());
    }
  }

  // Never used before by this user.
  std::string name_of(const std::string& what) {
    return fmt::format("tessera-doctor-{}-{}-{}-{}", what, host_name(), ::getpid(), ++count_);
  }

  cluster::Scheduler& scheduler_;
  const DoctorOptions& options_;
  const cluster::Cluster& cluster_;
  std::vector<Finding> findings_;
  std::int64_t out_of_service_ = 0;  // nodes that jobs would go to
  int count_ = 0;
};

}  // namespace

std::vector<Finding> judge_node(const GpuEntry& gpu, const NodeReport& report,
                                const hardware::Catalogue& catalogue,
                                const std::string& own_version) {
  std::vector<Finding> findings;
  const auto add = [&](Level level, std::string text, std::string fix = {}) {
    findings.push_back(
        {.level = level, .about = gpu.name, .text = std::move(text), .fix = std::move(fix)});
  };
  add(Level::ok,
      fmt::format("{} reads and writes the workspace{}", report.node,
                  report.queue_s ? fmt::format("; {:.0f} s in the queue", *report.queue_s) : ""));
  if (gpu.name != "cpu") judge_devices(gpu, report, catalogue, findings);
  // Without a trainer there are no capabilities to judge.
  if (!report.trainer_fault.empty()) {
    add(Level::mend, fmt::format("on {}: {}", report.node, report.trainer_fault),
        "trainer: {path: ...}, where nodes have it");
    return findings;
  }
  try {
    const Capabilities can = parse_capabilities(parse_json(report.capabilities, report.node));
    add(Level::ok, fmt::format("{} on {}: devices {}; precisions {}; sharding {}", report.version,
                               report.node, fmt::join(can.devices, ", "),
                               fmt::join(can.precisions, ", "), fmt::join(can.sharding, ", ")));
    const std::string device = gpu.name == "cpu" ? "cpu" : "cuda";
    if (std::ranges::find(can.devices, device) == can.devices.end()) {
      const bool knows_why = device != "cpu" && !can.no_cuda.empty();
      add(Level::mend,
          fmt::format("the trainer on {} has no {} device{}: --RUN would drop each point",
                      report.node, device, knows_why ? fmt::format(" ({})", can.no_cuda) : ""),
          knows_why ? "mend that, or take the entry out of the cluster file"
                    : "a trainer that is built for it, and on GPUs a driver");
    }
  } catch (const Error& error) {
    add(Level::mend, fmt::format("trainer --capabilities: {}", error.what()),
        "a trainer of the same version as submit");
  }
  if (!own_version.empty() && report.version != own_version) {
    add(Level::note,
        fmt::format("{} on {}, {} beside submit", report.version, report.node, own_version));
  }
  return findings;
}

std::vector<Finding> examine(cluster::Scheduler& scheduler, const DoctorOptions& options) {
  return Examination(scheduler, options).run();
}

}  // namespace tessera::submit
