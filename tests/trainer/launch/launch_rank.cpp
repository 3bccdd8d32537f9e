// SPDX-License-Identifier: Apache-2.0
// A rank as a process, or the start of several:
//
//   launch_rank ranks N ACTION...      run_local_ranks of "launch_rank ACTION..."; its code
//   launch_rank FOLDER ACTION          opens the store (FOLDER may be "-": none), prints
//                                      "met RANK PID" and does one of these:
//     leave          leaves in peace once all have met
//     watch          waits until a rank is lost, prints "lost RANK: reason", ends with 15
//     fail-RANK-CODE that rank leaves with the reason "on purpose" and ends with CODE, the others
//                    watch
//     die-RANK       that rank ends itself by SIGKILL, the others watch
//     deaf-RANK      that rank ends with 18, the others neither notice nor obey SIGTERM
//     signal         waits for SIGTERM, prints "told RANK", leaves in peace
//     secret         leaves in peace, with 0 if the token is in no command line of this machine
//   launch_rank missing                ends with 18 without opening anything
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "trainer/launch/local_ranks.h"
#include "trainer/launch/open_store.h"
#include "trainer/launch/place.h"

namespace {

using namespace tessera;
using namespace tessera::trainer;

constexpr std::chrono::milliseconds kLong{60'000};

std::atomic<int> stop{0};

void note(int signal) {
  stop = signal;
}

// Writes a line in one call, so that lines of several ranks do not mix.
void say(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const auto wrote = ::write(STDOUT_FILENO, text.data(), text.size());
}

void pause() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

int watch(Store& store) {
  while (!store.lost()) pause();
  say("lost " + std::to_string(store.lost()->rank) + ": " + store.lost()->reason);
  return static_cast<int>(ExitCode::comm_error);
}

// Waits until all ranks have come this far.
void barrier(Store& store, const Place& place) {
  store.set("here." + std::to_string(place.rank), "");
  for (int rank = 0; rank < place.ranks; ++rank) store.get("here." + std::to_string(rank), kLong);
  store.set("passed." + std::to_string(place.rank), "");
}

// Waits until no other rank is in the barrier, where it would notice a loss at once.
void wait_for_passed(Store& store, const Place& place) {
  for (int rank = 0; rank < place.ranks; ++rank) store.get("passed." + std::to_string(rank), kLong);
}

int secret() {
  const std::string token = process_environment("TESSERA_STORE_TOKEN").value_or("");
  if (token.size() != 32) return 1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    try {
      const auto text = read_file_if_exists(entry.path() / "cmdline");
      if (text && text->find(token) != std::string::npos) return 1;
    } catch (const Error&) {
      continue;  // it has ended meanwhile
    }
  }
  return 0;
}

int act(const std::string& action, Store& store, const Place& place) {
  const auto number = [&](std::size_t from) { return std::atoi(action.c_str() + from); };
  if (action == "watch") return watch(store);
  barrier(store, place);
  if (action == "leave") return 0;
  if (action == "secret") return secret();
  if (action.starts_with("fail-")) {
    if (place.rank != number(5)) return watch(store);
    wait_for_passed(store, place);
    store.leave("on purpose");
    return number(action.find('-', 5) + 1);
  }
  if (action.starts_with("die-")) {
    if (place.rank != number(4)) return watch(store);
    wait_for_passed(store, place);
    ::kill(::getpid(), SIGKILL);
  }
  if (action.starts_with("deaf-")) {
    ::signal(SIGTERM, SIG_IGN);
    if (place.rank == number(5)) {
      wait_for_passed(store, place);
      std::_Exit(18);
    }
    while (true) pause();
  }
  while (stop == 0) pause();  // signal
  say("told " + std::to_string(place.rank));
  return 0;
}

int run(const std::vector<std::string>& words) {
  struct sigaction action{};
  action.sa_handler = note;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGUSR1, &action, nullptr);
  if (words.at(1) == "missing") return 18;
  if (words.at(1) == "ranks") {
    std::vector<std::string> command(words.begin() + 2, words.end());
    command.front() = words.front();
    // Ranks that ignore SIGTERM get a short patience, so that the test is short too.
    const bool deaf = words.back().starts_with("deaf-");
    const Patience patience{.to_speak = std::chrono::milliseconds(deaf ? 100 : 60'000),
                            .to_end = std::chrono::milliseconds(deaf ? 100 : 60'000)};
    return run_local_ranks(std::atoi(words.at(2).c_str()), command, stop, patience);
  }
  const Place place = place_of(process_environment);
  const auto store =
      open_store(place, {.run_dir = words.at(1) == "-" ? "" : words.at(1), .limit = kLong},
                 process_environment);
  say("met " + std::to_string(place.rank) + " " + std::to_string(::getpid()));
  return act(words.at(2), *store, place);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv, argv + argc});
  } catch (const Error& error) {
    std::fprintf(stderr, "launch_rank: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "launch_rank: %s\n", error.what());
    return 1;
  }
}
