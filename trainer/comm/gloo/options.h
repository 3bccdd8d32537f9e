// How a rank joins a communicator over Gloo, and its sizes.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tessera::trainer {

namespace comm {
struct GlooModule;
inline constexpr std::int64_t kSmallBytes = 128;
inline constexpr std::int64_t kScratchBytes = std::int64_t{8} << 20;
// Each rank tells each other one its address through the store, which takes 64 KiB a value.
inline constexpr int kMostGlooRanks = 256;
}  // namespace comm

struct GlooOptions {
  // Where this rank listens: a network interface, else a host name or address.
  std::string interface;
  std::string host = "127.0.0.1";
  // For the others to come to prepare.
  std::chrono::milliseconds limit = std::chrono::minutes(10);
  // Keeps the keys of two communicators in one store apart.
  std::string name = "gloo";
};

}  // namespace tessera::trainer
