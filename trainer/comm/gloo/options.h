// SPDX-License-Identifier: Apache-2.0
// How a rank joins a communicator over Gloo, and its limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tessera::trainer {

namespace comm {
struct GlooModule;
inline constexpr std::int64_t kSmallBytes = 128;
inline constexpr std::int64_t kScratchBytes = std::int64_t{8} << 20;
// Each rank tells every other one its address through the store, whose values have at most 64 KiB.
inline constexpr int kMostGlooRanks = 256;
}  // namespace comm

struct GlooOptions {
  // The network interface on which this rank listens, or else a host name or address.
  std::string interface;
  std::string host = "127.0.0.1";
  // How long to wait in prepare for the others.
  std::chrono::milliseconds limit = std::chrono::minutes(10);
  // A prefix that separates the keys of two communicators in one store.
  std::string name = "gloo";
};

}  // namespace tessera::trainer
