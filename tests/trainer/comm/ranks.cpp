// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/comm/ranks.h"

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tests/trainer/comm/meeting.h"
#include "tests/trainer/comm/threads.h"
#include "trainer/comm/gloo/gloo.h"

namespace tessera::trainer::test {

namespace {

const comm::GlooModule* gloo_module() {
  static const comm::GlooModule* const module = []() -> const comm::GlooModule* {
    const char* folder = std::getenv("TESSERA_BIN");
    const std::filesystem::path path =
        std::filesystem::path(folder != nullptr ? folder : "build/release/bin") / "tessera-gloo.so";
    if (!std::filesystem::exists(path)) {
      MESSAGE("skipped: built without Gloo, its communicator");
      return nullptr;
    }
    // A vanished peer is to be an error of the connection, not a signal.
    std::signal(SIGPIPE, SIG_IGN);
    return &open_gloo(std::filesystem::absolute(path));
  }();
  return module;
}

Communicators gloo_communicators(int ranks) {
  // Each store outlives its communicator, whenever a test destroys that.
  static std::deque<MeetingStore> stores;
  const auto meeting = std::make_shared<Meeting>();
  Communicators communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(
        gloo_communicator(*gloo_module(), rank, ranks, stores.emplace_back(meeting, rank), {}));
  }
  return communicators;
}

}  // namespace

std::vector<Outcome> run_ranks(Communicators communicators,
                               const std::function<void(Communicator&)>& body) {
  std::vector<Outcome> outcomes(communicators.size());
  std::vector<bool> done(communicators.size());
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t living = communicators.size();
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    threads.emplace_back([&, i, own = std::move(communicators[i])]() mutable {
      try {
        const std::unique_ptr<Communicator> communicator = std::move(own);
        body(*communicator);
      } catch (const Error& e) {
        outcomes[i] = {e.code(), e.what()};
      } catch (const std::exception& e) {
        outcomes[i] = {std::nullopt, e.what()};
      }
      const std::lock_guard lock(mutex);
      done[i] = true;
      --living;
      changed.notify_all();
    });
  }
  {
    std::unique_lock lock(mutex);
    const auto deadline = std::chrono::system_clock::now() + std::chrono::minutes(1);
    if (!changed.wait_until(lock, deadline, [&] { return living == 0; })) {
      for (std::size_t i = 0; i < done.size(); ++i) {
        if (!done[i]) std::fprintf(stderr, "rank %zu of %zu hangs\n", i, done.size());
      }
      std::_Exit(1);
    }
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

void run_prepared(Communicators communicators, const std::function<void(Communicator&)>& body) {
  const auto outcomes = run_ranks(std::move(communicators), [&](Communicator& communicator) {
    communicator.prepare({});
    body(communicator);
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.message == "");
}

std::vector<Kind> kinds(int ranks) {
  std::vector<Kind> result;
  if (ranks == 1) {
    result.push_back({"single", {}});
    result.back().communicators.push_back(single_communicator());
  }
  result.push_back({"threads", threads_communicators(ranks)});
#ifdef __SANITIZE_THREAD__
  // Gloo is not built for this sanitizer, which cannot see how its threads synchronise.
  constexpr bool kWithGloo = false;
#else
  constexpr bool kWithGloo = true;
#endif
  if (kWithGloo && ranks > 1 && gloo_module() != nullptr)
    result.push_back({"Gloo", gloo_communicators(ranks)});
  return result;
}

}  // namespace tessera::trainer::test
