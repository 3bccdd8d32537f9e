// SPDX-License-Identifier: Apache-2.0
// The interface of tessera-gloo.so: messages between ranks over Gloo's TCP transport. The trainer
// links its C++ library statically, the module links the system's, so only plain C crosses between
// them: no object and no exception.
//
// A rank opens a link, tells its addresses, connects to each peer and then sends and receives. Each
// pair of ranks has some lanes. What one rank sends on a lane the other receives in the same order,
// each message into the receive of the same position, which must have the same size. Any number may
// be in flight; the n-th wait of a lane and direction returns when n of them are complete.
//
// Functions return 0, or -1 and say why in `error` (kErrorBytes long, ends with 0). All calls come
// from one thread, except release. Memory that is being sent or received stays unchanged until its
// wait or close has returned.
#pragma once

#include <cstddef>

namespace tessera::trainer::comm {

inline constexpr int kGlooModuleVersion = 1;
inline constexpr std::size_t kErrorBytes = 512;

enum Lane : int { kControlLane, kScatterLane, kGatherLane, kLanes };

extern "C" {

struct GlooLink;

struct GlooModule {
  int version;
  // Opens a link for one of size >= 2 ranks. interface: name of the network interface ("eth0"), or
  // null; then host: a name or address of this machine to listen on. Null, with `error`, if that
  // fails.
  GlooLink* (*open)(int rank, int size, const char* interface, const char* host, char* error);
  // Writes one address for each peer: size of them, each of *bytes bytes, the rank's own one zeros.
  // `out` null: only sets *bytes.
  int (*addresses)(GlooLink*, unsigned char* out, std::size_t* bytes, char* error);
  // Connects to a peer; waits for it for at most a minute. address: this rank's one among the
  // peer's addresses.
  int (*connect)(GlooLink*, int peer, const unsigned char* address, std::size_t bytes, char* error);
  int (*send)(GlooLink*, int peer, int lane, const void* data, std::size_t bytes, char* error);
  int (*receive)(GlooLink*, int peer, int lane, void* data, std::size_t bytes, char* error);
  int (*wait_sent)(GlooLink*, int peer, int lane, char* error);
  int (*wait_received)(GlooLink*, int peer, int lane, char* error);
  // Makes the running or next wait fail. Callable from any thread, but not during or after close.
  void (*release)(GlooLink*);
  // Waits before close until one more message of each peer has arrived on the lane, its connection
  // has ended, or the time is over. Closing a connection while a peer's messages are in flight may
  // reset it and lose what was sent last. Only close may follow.
  void (*linger)(GlooLink*, int lane, int milliseconds);
  // Ends all connections and frees the link. Afterwards no memory is touched.
  void (*close)(GlooLink*);
};

// The module's only symbol.
using GlooModuleFunction = const GlooModule*();
inline constexpr const char* kGlooModuleSymbol = "tessera_gloo_module";
}

}  // namespace tessera::trainer::comm
