// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/local/gpus.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/cluster/local/scheduler.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::cluster;

namespace {

using Texts = std::vector<std::string>;

// This process's CUDA_VISIBLE_DEVICES while it lives.
class Visible {
 public:
  explicit Visible(const char* list) {
    if (const char* before = std::getenv(kVisibleGpus)) before_ = before;
    set(list);
  }
  ~Visible() { set(before_ ? before_->c_str() : nullptr); }
  Visible(const Visible&) = delete;
  Visible& operator=(const Visible&) = delete;

 private:
  static void set(const char* list) {
    if (list != nullptr) {
      ::setenv(kVisibleGpus, list, 1);
    } else {
      ::unsetenv(kVisibleGpus);
    }
  }
  std::optional<std::string> before_;
};

// A machine with GPUs, and in the trainer's place a program that writes down which it sees and
// stays until a file `end` is beside it.
class Box {
 public:
  Box() {
    write_file_atomically(trainer(),
                          "#!/bin/sh\necho \"[${CUDA_VISIBLE_DEVICES-none}]\" > \"$2.sees\"\n"
                          "until [ -e '" +
                              (folder_ / "end").string() + "' ]; do sleep 0.02; done\n");
    ::chmod(trainer().c_str(), 0755);
  }
  ~Box() {
    write_file_atomically(folder_ / "end", "");
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
  }
  Box(const Box&) = delete;
  Box& operator=(const Box&) = delete;

  std::unique_ptr<Scheduler> scheduler(std::map<std::string, std::string> env = {}) const {
    Cluster cluster{.name = "box", .gpus = {{.name = "h200", .per_node = 2}, {.name = "cpu"}}};
    cluster.env = std::move(env);
    return local_scheduler(std::move(cluster), trainer(), user_name());
  }

  // Starts a run; what it sees.
  std::string sees(Scheduler& scheduler, const std::string& gpu = "h200",
                   const std::map<std::string, std::string>& env = {}) {
    Job job{.name = "run", .project = "p", .gpu = gpu};
    job.runs = {{.run = "run", .run_dir = dir(++runs_), .spec_json = "{}", .env = env}};
    scheduler.submit(job, [](const std::string&) {});
    const std::filesystem::path file = dir(runs_) / "run.1.json.sees";
    for (int i = 0; i < 500; ++i) {
      const std::string text = read_file_if_exists(file).value_or("");
      if (text.ends_with("]\n")) return text.substr(0, text.size() - 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return "nothing";
  }

  // Run `number`'s job, as a later submit finds it.
  OpenJob open(int number) const {
    return {.name = "run", .host = host_name(), .runs = {{"run", 1, dir(number)}}};
  }

 private:
  std::filesystem::path trainer() const { return folder_ / "trainer"; }
  std::filesystem::path dir(int number) const { return folder_ / std::to_string(number); }

  test::TemporaryFolder folder_;
  int runs_ = 0;
};

}  // namespace

TEST_CASE("what CUDA_VISIBLE_DEVICES lists, as CUDA reads it") {
  CHECK(gpus_to_take(std::nullopt, 3) == Texts{"0", "1", "2"});
  CHECK(gpus_to_take("3, 1,0", 8) == Texts{"3", "1", "0"});
  CHECK(gpus_to_take("3,1,0", 2) == Texts{"3", "1"});
  CHECK(gpus_to_take("GPU-8932f937,MIG-c7", 8) == Texts{"GPU-8932f937", "MIG-c7"});
  CHECK(gpus_to_take("0,-1,2", 8) == Texts{"0"});
  CHECK(gpus_to_take("", 8).empty());
}

TEST_CASE("a run takes the GPUs that fewest others have") {
  CHECK(choose_gpus({"0", "1"}, {}, 1) == Texts{"0"});
  CHECK(choose_gpus({"0", "1"}, {"0"}, 1) == Texts{"1"});
  CHECK(choose_gpus({"0", "1", "2", "3"}, {"1", "0"}, 2) == Texts{"2", "3"});
  CHECK(choose_gpus({"0", "1"}, {"0", "0", "1"}, 1) == Texts{"1"});
  CHECK(choose_gpus({"0", "1"}, {}, 3).empty());
  CHECK(choose_gpus({}, {}, 1).empty());
}

TEST_CASE("what a process was started with, where it can be read") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const char* const arguments[] = {"sleep", "60", nullptr};
    const char* const variables[] = {"A=1", "CUDA_VISIBLE_DEVICES=3,1", "B=2", nullptr};
    ::execve("/bin/sleep", const_cast<char* const*>(arguments),
             const_cast<char* const*>(variables));
    ::_exit(1);
  }
  for (int i = 0; i < 500 && gpus_of_process(child) != Texts{"3", "1"}; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(gpus_of_process(child) == Texts{"3", "1"});
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  CHECK(gpus_of_process(child).empty());  // a zombie's cannot be read
  ::waitpid(child, nullptr, 0);
  CHECK(gpus_of_process(child).empty());
}

TEST_CASE("two runs at once on a machine of two GPUs have one each") {
  const Visible none(nullptr);
  Box box;
  const auto scheduler = box.scheduler();
  CHECK(box.sees(*scheduler) == "[0]");
  CHECK(box.sees(*scheduler) == "[1]");
  CHECK(box.sees(*scheduler, "cpu") == "[none]");
  // A later submit is asked about the first, and leaves its GPU alone.
  const auto later = box.scheduler();
  const OpenJob first = box.open(1);
  CHECK(later->query({&first, 1}).front().phase == JobState::Phase::running);
  CHECK(box.sees(*later) == "[1]");
}

TEST_CASE("runs take what the user's CUDA_VISIBLE_DEVICES leaves, and a run's own is its own") {
  const Visible two("5,GPU-ab,7");
  Box box;
  const auto scheduler = box.scheduler();
  CHECK(box.sees(*scheduler) == "[5]");
  CHECK(box.sees(*scheduler) == "[GPU-ab]");
  CHECK(box.sees(*scheduler, "h200", {{kVisibleGpus, "7"}}) == "[7]");
  const auto by_file = box.scheduler({{kVisibleGpus, "2,3"}});
  CHECK(box.sees(*by_file, "h200", {{kVisibleGpus, "2,3"}}) == "[2]");
  CHECK(box.sees(*by_file, "h200", {{kVisibleGpus, "2,3"}}) == "[3]");
}

TEST_CASE("what the user hides stays hidden") {
  const Visible nothing("");
  Box box;
  const auto scheduler = box.scheduler();
  CHECK(box.sees(*scheduler) == "[]");
}
