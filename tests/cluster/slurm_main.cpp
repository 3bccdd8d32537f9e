// SPDX-License-Identifier: Apache-2.0
// Starts a Slurm cluster, runs the test cases on it as root and at the same time as a user without
// privileges, then those of root alone that stop daemons, and ends the cluster whatever happens.
//
// [root]: not by the other user. [alone]: when nothing else runs.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/file.h"

namespace {

namespace fs = std::filesystem;
using namespace tessera;

constexpr const char* kUser = "slurmtest";

std::string what_is_missing() {
  if (::geteuid() != 0) return "only root can start the daemons of a Slurm cluster";
  for (const char* program : {"slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "sbatch"}) {
    bool is_there = false;
    for (const char* folder : {"/usr/sbin/", "/usr/bin/", "/usr/local/sbin/", "/usr/local/bin/"})
      is_there = is_there || ::access((std::string(folder) + program).c_str(), X_OK) == 0;
    if (!is_there)
      return fmt::format("{} is not installed (scripts/install-packages.sh test)", program);
  }
  return {};
}

// Lives as long as a pipe of ours is open: even if this program is killed, it cleans up.
class Keeper {
 public:
  Keeper(const std::string& script, const fs::path& log) {
    std::array<int, 2> hold{};
    std::array<int, 2> word{};
    if (::pipe2(hold.data(), O_CLOEXEC) != 0 || ::pipe2(word.data(), O_CLOEXEC) != 0) std::abort();
    const int log_file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (log_file < 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setsid();
      ::dup2(hold[0], STDIN_FILENO);
      ::dup2(word[1], STDOUT_FILENO);
      ::dup2(log_file, STDERR_FILENO);
      ::execl(script.c_str(), script.c_str(), "keep", nullptr);
      ::_exit(127);
    }
    ::close(hold[0]);
    ::close(word[1]);
    ::close(log_file);
    hold_ = hold[1];
    std::array<char, 2> up{};
    is_up_ = ::read(word[0], up.data(), up.size()) == 2;
    ::close(word[0]);
    if (!is_up_) finish();
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper() { finish(); }

  bool is_up() const { return is_up_; }
  // In a child: the parent alone decides.
  void let_go() {
    ::close(hold_);
    hold_ = -1;
    pid_ = -1;
  }
  void finish() {
    if (hold_ >= 0) ::close(hold_);
    hold_ = -1;
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int hold_ = -1;
  bool is_up_ = false;
};

void become(const passwd& user) {
  if (::setgid(user.pw_gid) != 0 || ::initgroups(user.pw_name, user.pw_gid) != 0 ||
      ::setuid(user.pw_uid) != 0)
    std::abort();
  ::setenv("USER", user.pw_name, 1);
  ::setenv("LOGNAME", user.pw_name, 1);
  ::setenv("HOME", user.pw_dir, 1);
}

struct Part {
  std::string title;
  fs::path log;
  pid_t pid = 0;
};

// A process of its own that runs the test cases of `filter` as `user`.
Part start(const std::string& title, const char* user, const std::vector<const char*>& filter,
           int argc, char** argv, const fs::path& folder, Keeper& keeper) {
  Part part{.title = title, .log = folder / ("test-" + title + ".log")};
  const passwd* entry = ::getpwnam(user);
  if (entry == nullptr) std::abort();
  const fs::path work = folder / ("work-" + title);
  fs::create_directories(work);
  if (::chown(work.c_str(), entry->pw_uid, entry->pw_gid) != 0) std::abort();
  std::cout.flush();
  part.pid = ::fork();
  if (part.pid != 0) return part;
  keeper.let_go();
  const int log = ::open(part.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (log < 0) std::abort();
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  if (entry->pw_uid != 0) become(*entry);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // without the cluster there is nothing to test
  ::setenv("TESSERA_TEST_SLURM_FOLDER", work.c_str(), 1);
  int code = 1;
  {
    doctest::Context context;
    for (std::size_t i = 0; i + 1 < filter.size(); i += 2)
      context.addFilter(filter[i], filter[i + 1]);
    context.setOption("duration", true);
    context.applyCommandLine(argc, argv);
    code = context.run();
  }
  std::cout.flush();
  ::_exit(code);
}

int finish(const Part& part) {
  int status = 0;
  ::waitpid(part.pid, &status, 0);
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  std::cout << fmt::format("== as {}: exit code {}\n", part.title, code) << read_file(part.log)
            << "\n";
  return code;
}

bool is_free(int port) {
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (server < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  ::setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool is_bound =
      ::bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(server);
  return is_bound;
}

// The first of the ports of a cluster: beside other runs of this program and what else is there,
// and below the ports that the kernel gives out.
int free_ports() {
  constexpr int kFirstPort = 18000;
  constexpr int kPortsEach = 25;
  constexpr int kPlaces = 500;
  for (int i = 0; i < kPlaces; ++i) {
    const int first = kFirstPort + (static_cast<int>(::getpid()) + i) % kPlaces * kPortsEach;
    int port = first;
    while (port < first + kPortsEach && is_free(port)) ++port;
    if (port == first + kPortsEach) return first;
  }
  return kFirstPort;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string missing = what_is_missing();
  if (!missing.empty()) {
    std::cout << "skipped: " << missing << "\n";
    return 0;
  }
  const double begin_s = monotonic_seconds();
  std::string pattern = (fs::temp_directory_path() / "tessera-slurm-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) return 1;
  const fs::path folder = pattern;
  ::chmod(folder.c_str(), 0755);
  const int port = free_ports();
  const std::string script = fs::absolute("tests/cluster/slurm-dev-cluster.sh").string();
  // Slurm's own variables of whoever runs this are another cluster's.
  ::unsetenv("SLURM_CONF");
  ::setenv("SLURM_DEV_DIR", folder.c_str(), 1);
  ::setenv("SLURM_DEV_PORT", std::to_string(port).c_str(), 1);
  ::setenv("SLURM_DEV_NODES", "4", 1);
  ::setenv("SLURM_DEV_USER", kUser, 1);
  ::setenv("TESSERA_TEST_SLURM_CONTROL", script.c_str(), 1);
  const fs::path log = fs::temp_directory_path() / (folder.filename().string() + ".log");
  int code = 0;
  double up_s = 0;
  double tested_s = 0;
  {
    Keeper keeper(script, log);
    if (!keeper.is_up()) {
      std::cout << "the cluster did not start:\n" << read_file(log) << "\n";
      return 1;
    }
    up_s = monotonic_seconds();
    ::setenv("SLURM_CONF", (folder / "etc/slurm.conf").c_str(), 1);
    // Where every user can start it.
    const char* bin = std::getenv("TESSERA_BIN");
    fs::create_directories(folder / "bin");
    for (const char* program : {"submit", "collect", "trainer", "tessera-gloo.so"}) {
      fs::copy_file(fs::path(bin != nullptr ? bin : "build/release/bin") / program,
                    folder / "bin" / program);
      fs::permissions(folder / "bin" / program, fs::perms(0755));
    }
    fs::copy("yamls", folder / "yamls", fs::copy_options::recursive);
    const Part root =
        start("root", "root", {"test-case-exclude", "*[alone]*"}, argc, argv, folder, keeper);
    const Part user = start(kUser, kUser, {"test-case-exclude", "*[alone]*,*[root]*"}, argc, argv,
                            folder, keeper);
    const int of_user = finish(user);
    const int of_root = finish(root);
    const Part alone =
        start("root-alone", "root", {"test-case", "*[alone]*"}, argc, argv, folder, keeper);
    const int of_alone = finish(alone);
    code = of_user != 0 || of_root != 0 || of_alone != 0 ? 1 : 0;
    tested_s = monotonic_seconds();
    if (code != 0 && std::getenv("TESSERA_TEST_KEEP") != nullptr) {
      std::cout << "the cluster is kept in " << folder << " until a line is read\n";
      std::string line;
      std::getline(std::cin, line);
    }
  }
  fs::remove(log);
  std::cout << fmt::format("cluster up in {:.1f} s, tests {:.1f} s, cluster ended in {:.1f} s\n",
                           up_s - begin_s, tested_s - up_s, monotonic_seconds() - tested_s);
  return code;
}
