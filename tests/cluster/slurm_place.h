// SPDX-License-Identifier: Apache-2.0
// The real Slurm that the tests of this folder run on: 4 nodes of 16 CPUs and 8 GPUs, which are
// processes of this machine. node04 is for the tests that break nodes; no other uses it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/cluster/cluster_file.h"
#include "lib/cluster/scheduler.h"
#include "lib/cluster/slurm/scheduler.h"
#include "tests/lib/cluster/scheduler_contract.h"

namespace tessera::test {

inline std::string slurm_variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}
// The folder of the user that runs the tests; all nodes see it.
inline std::filesystem::path slurm_folder() {
  return slurm_variable("TESSERA_TEST_SLURM_FOLDER");
}
// The daemons' folder.
inline std::filesystem::path slurm_state() {
  return slurm_variable("SLURM_DEV_DIR");
}
inline std::filesystem::path slurm_trainer() {
  return slurm_state() / "bin/trainer";
}
inline std::string slurm_control() {
  return slurm_variable("TESSERA_TEST_SLURM_CONTROL");
}

inline cluster::Cluster slurm_test_cluster() {
  cluster::Cluster cluster;
  cluster.name = "dev";
  cluster.source = "dev.yaml";
  cluster.kind = cluster::Kind::slurm;
  cluster.gpus = {{.name = "cpu", .per_node = 16, .nodes = 4},
                  {.name = "h100_80gb", .per_node = 8, .nodes = 4, .gres = "gpu:h100"}};
  cluster.slurm.account = "dev";
  cluster.slurm.exclude = {"node04"};
  cluster.poll_s = 0.2;
  cluster.lookup_s = 10;
  return cluster;
}

inline std::unique_ptr<cluster::Scheduler> slurm_on(cluster::Cluster cluster,
                                                    const std::filesystem::path& trainer) {
  return cluster::slurm_scheduler(std::move(cluster), {.trainer = trainer.string()});
}

inline ContractPlace slurm_place() {
  return {.make = [](const auto& trainer) { return slurm_on(slurm_test_cluster(), trainer); },
          .folder = slurm_folder(),
          .spoil = [](cluster::Job& job) { job.nodes = job.ranks = 99; }};
}

// A variable of this process, as it was at the end.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* old = std::getenv(name_.c_str())) old_ = old;
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() {
    if (old_) {
      ::setenv(name_.c_str(), old_->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }

 private:
  std::string name_;
  std::optional<std::string> old_;
};

// Programs that stand before the real ones.
class FakePrograms {
 public:
  FakePrograms()
      : folder_(slurm_folder() / ("fake-" + std::to_string(count()++))),
        path_("PATH", folder_.string() + ":" + slurm_variable("PATH")) {
    std::filesystem::create_directories(folder_);
  }
  void add(const std::string& name, const std::string& body) const {
    std::ofstream(folder_ / name) << "#!/bin/bash\n" << body << "\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  static int& count() {
    static int value = 0;
    return value;
  }
  std::filesystem::path folder_;
  Variable path_;
};

}  // namespace tessera::test
