// SPDX-License-Identifier: Apache-2.0
// The TCP sockets of the store: where rank 0 listens, and how the others try its addresses.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/file.h"
#include "lib/base/names.h"
#include "trainer/launch/place.h"
namespace tessera::trainer {

using SteadyClock = std::chrono::steady_clock;

// "10.0.0.1:4242", "[fd00::1]:4242", "gpu-12:4242"
struct Address {
  std::string host;
  int port = 0;
};
using tessera::to_text;  // of enumerations: what follows must not hide it
std::string to_text(const Address& address);
std::optional<Address> parse_address(const std::string& text);

struct Listening {
  std::vector<FileDescriptor> sockets;  // non-blocking
  std::vector<Address> addresses;       // where a peer may reach them, the likeliest first
};

// Listens on a free port: on loopback if there is one node; otherwise on the interfaces that
// TESSERA_INTERFACE or GLOO_SOCKET_IFNAME names ("eth0" or "ib0,ib1"), otherwise on all.
// Error(spec) if a named one does not exist, Error(comm_error) if there is no port.
Listening listen_for(const Place& place, const Environment& variable);
// Listens on one numeric address; port 0: a free one. Error(comm_error).
FileDescriptor listen_on(const Address& address);
// Listens on all interfaces. Error(comm_error) if the port is taken.
FileDescriptor listen_everywhere(int port);
int port_of(const FileDescriptor& listener);

// Sends small messages at once, and notices within half a minute that a peer has vanished without a
// word (power, network).
void set_options(const FileDescriptor& connection);

// Returns the numeric address, or what a name resolves to, which may take a while; empty if
// nothing.
std::vector<Address> resolve(const Address& address, bool names_too);
// Starts a non-blocking connection. Nothing and `trouble` if it cannot be started.
FileDescriptor start_connecting(const Address& numeric, std::string& trouble);
// Returns whether the connection is made, once the socket is writable; otherwise `trouble` says why
// not.
bool is_connected(const FileDescriptor& connection, std::string& trouble);

// Sends all bytes, waiting at most until `deadline`. False if the connection ended or time is over.
bool send_all(const FileDescriptor& connection, std::string_view bytes,
              SteadyClock::time_point deadline);

// Returns milliseconds for poll(2), at least 0, rounded up.
int poll_timeout(SteadyClock::time_point until);

}  // namespace tessera::trainer
