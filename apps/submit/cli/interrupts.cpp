// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/interrupts.h"

#include <csignal>
#include <initializer_list>

namespace tessera::apps {

namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

const std::atomic<bool>& catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) { g_interrupted = true; };
  sigemptyset(&action.sa_mask);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP})
    ::sigaction(signal_number, &action, nullptr);
  return g_interrupted;
}

}  // namespace tessera::apps
