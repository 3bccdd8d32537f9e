// What tessera-gloo.so gives: messages between ranks over Gloo's TCP transport. The trainer links
// its C++ library statically, the module the system's: only plain C crosses between them, no object
// and no exception.
//
// A rank makes a link, tells its addresses, connects to each peer and then sends and receives. Each
// pair of ranks has some lanes; what one sends on a lane the other receives in the same order, each
// message into the receive of the same place, which must have the same size. Any number may be on
// the way; the n-th wait of a lane and direction returns when n of them are over.
//
// Functions return 0, or -1 and say why in `error` (kErrorBytes long, ends with 0). Threads: one
// thread, but for release. Memory that is being sent or received stays as it is until its wait has
// returned or close has.
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
  // One of size >= 2 ranks. interface: name of the network interface ("eth0"), or null; then host:
  // a name or address of this machine to listen on. Null, with `error`, if there is none.
  GlooLink* (*open)(int rank, int size, const char* interface, const char* host, char* error);
  // One address a peer, size of them, each of *bytes bytes, the own one zeros. `out` null: only
  // tells *bytes.
  int (*addresses)(GlooLink*, unsigned char* out, std::size_t* bytes, char* error);
  // address: that of this rank among the peer's addresses. Waits for the peer, a minute at most.
  int (*connect)(GlooLink*, int peer, const unsigned char* address, std::size_t bytes, char* error);
  int (*send)(GlooLink*, int peer, int lane, const void* data, std::size_t bytes, char* error);
  int (*receive)(GlooLink*, int peer, int lane, void* data, std::size_t bytes, char* error);
  int (*wait_sent)(GlooLink*, int peer, int lane, char* error);
  int (*wait_received)(GlooLink*, int peer, int lane, char* error);
  // From any thread, not beside or after close: a wait that is running or comes next fails.
  void (*release)(GlooLink*);
  // Before close: waits until one more message of each peer has come on the lane, its connection
  // has ended, or the time is over. A connection that is closed while messages of the peer are on
  // their way may be reset, and lose what was sent last; no other call follows.
  void (*linger)(GlooLink*, int lane, int milliseconds);
  // Ends all connections; afterwards no memory is touched. Frees the link.
  void (*close)(GlooLink*);
};

// The module's only symbol.
using GlooModuleFunction = const GlooModule*();
inline constexpr const char* kGlooModuleSymbol = "tessera_gloo_module";
}

}  // namespace tessera::trainer::comm
