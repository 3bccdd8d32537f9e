// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/sockets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>

#include "lib/base/error.h"
#include "lib/base/numbers.h"
#include "lib/base/process.h"

namespace tessera::trainer {

namespace {

constexpr int kMostPort = 65535;
constexpr int kBacklog = 4096;  // the kernel cuts it to its own limit

std::string cause(int error_number) {
  return std::generic_category().message(error_number);
}

[[noreturn]] void throw_listening(const Address& address, int error_number) {
  throw Error(ExitCode::comm_error, to_text(address),
              fmt::format("rank 0 cannot listen there: {}", cause(error_number)));
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList look_up(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) !=
      0)
    found = nullptr;
  return {found, &::freeaddrinfo};
}

std::optional<std::string> numeric_host(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return std::nullopt;
  return host.data();
}

FileDescriptor stream_socket(int family) {
  return FileDescriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void set_option(const FileDescriptor& socket, int level, int name, int value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof value);
}

bool start_listening(const FileDescriptor& socket, const sockaddr* address, socklen_t size) {
  // Lets the port be used although its last owner left connections in TIME_WAIT.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  return ::bind(socket.get(), address, size) == 0 && ::listen(socket.get(), kBacklog) == 0;
}

struct Interface {
  std::string name;
  std::string host;
  bool loopback = false;
  bool v6 = false;
};

// Returns all addresses of this machine that another machine could name. Link-local ones are left
// out: they mean something on their own link only.
std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto host = numeric_host(entry->ifa_addr,
                                   family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!host || host->find('%') != std::string::npos) continue;
    found.push_back({.name = entry->ifa_name,
                     .host = *host,
                     .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0,
                     .v6 = family == AF_INET6});
  }
  // IPv4 first, loopback last: loopback is right only for a peer on the same machine.
  std::ranges::stable_sort(
      found, {}, [](const Interface& one) { return (one.loopback ? 2 : 0) + (one.v6 ? 1 : 0); });
  return found;
}

// Listens on each address of each named interface: they may have several, IPv4 and IPv6.
Listening listen_on_named(const std::string& variable, const std::string& names) {
  Listening listening;
  const std::vector<Interface> all = interfaces();
  std::string_view rest = names;
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    const std::size_t before = listening.sockets.size();
    for (const Interface& one : all) {
      if (one.name != name) continue;
      listening.sockets.push_back(listen_on({.host = one.host}));
      listening.addresses.push_back({.host = one.host, .port = port_of(listening.sockets.back())});
    }
    if (listening.sockets.size() == before) {
      std::vector<std::string> known;
      for (const Interface& one : all) {
        if (std::ranges::find(known, one.name) == known.end()) known.push_back(one.name);
      }
      throw Error(ExitCode::spec, variable,
                  fmt::format("this machine has no interface '{}' with an address", name),
                  suggestion(name, known));
    }
  }
  return listening;
}

}  // namespace

std::string to_text(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port)
            : fmt::format("{}:{}", address.host, address.port);
}

std::optional<Address> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  const auto port = parse_integer(text.substr(colon + 1));
  if (!port || *port < 1 || *port > kMostPort) return std::nullopt;
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  return Address{.host = host, .port = static_cast<int>(*port)};
}

FileDescriptor listen_on(const Address& address) {
  const AddressList list = look_up(address, AI_NUMERICHOST | AI_NUMERICSERV);
  if (list == nullptr) throw_listening(address, EADDRNOTAVAIL);
  FileDescriptor socket = stream_socket(list->ai_family);
  if (!socket || !start_listening(socket, list->ai_addr, list->ai_addrlen))
    throw_listening(address, errno);
  return socket;
}

// One IPv6 socket takes IPv4 too, unless the machine has no IPv6.
FileDescriptor listen_everywhere(int port) {
  sockaddr_in6 all{};
  all.sin6_family = AF_INET6;
  all.sin6_addr = in6addr_any;
  all.sin6_port = htons(static_cast<std::uint16_t>(port));
  FileDescriptor both = stream_socket(AF_INET6);
  if (both) {
    set_option(both, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (start_listening(both, reinterpret_cast<const sockaddr*>(&all), sizeof all)) return both;
    if (errno == EADDRINUSE) throw_listening({.host = "::", .port = port}, errno);
  }
  return listen_on({.host = "0.0.0.0", .port = port});  // this machine has no IPv6
}

int port_of(const FileDescriptor& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Listening listen_for(const Place& place, const Environment& variable) {
  Listening listening;
  if (place.nodes == 1) {
    listening.sockets.push_back(listen_on({.host = "127.0.0.1"}));
    listening.addresses.push_back(
        {.host = "127.0.0.1", .port = port_of(listening.sockets.front())});
    return listening;
  }
  for (const char* name : {"TESSERA_INTERFACE", "GLOO_SOCKET_IFNAME"}) {
    const auto names = variable(name);
    if (names && !names->empty()) return listen_on_named(name, *names);
  }
  // The host's name stands between real addresses and loopback: it may resolve to either.
  listening.sockets.push_back(listen_everywhere(0));
  const int port = port_of(listening.sockets.front());
  const std::vector<Interface> all = interfaces();
  for (const Interface& one : all) {
    if (!one.loopback) listening.addresses.push_back({.host = one.host, .port = port});
  }
  listening.addresses.push_back({.host = host_name(), .port = port});
  for (const Interface& one : all) {
    if (one.loopback) listening.addresses.push_back({.host = one.host, .port = port});
  }
  return listening;
}

void set_options(const FileDescriptor& connection) {
  constexpr int kIdleSeconds = 10;
  constexpr int kBetweenSeconds = 5;
  constexpr int kProbes = 3;
  constexpr int kUnansweredMilliseconds = 25'000;
  set_option(connection, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(connection, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option(connection, IPPROTO_TCP, TCP_KEEPINTVL, kBetweenSeconds);
  set_option(connection, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  // TCP sends no keep-alive probes while data waits to be acknowledged, hence this limit.
  set_option(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMilliseconds);
}

std::vector<Address> resolve(const Address& address, bool names_too) {
  AddressList list = look_up(address, AI_NUMERICHOST | AI_NUMERICSERV);
  if (list == nullptr && names_too) list = look_up(address, AI_NUMERICSERV);
  std::vector<Address> found;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (auto host = numeric_host(entry->ai_addr, entry->ai_addrlen))
      found.push_back({.host = *std::move(host), .port = address.port});
  }
  return found;
}

FileDescriptor start_connecting(const Address& numeric, std::string& trouble) {
  const AddressList list = look_up(numeric, AI_NUMERICHOST | AI_NUMERICSERV);
  if (list == nullptr) {
    trouble = "no address";
    return {};
  }
  FileDescriptor socket = stream_socket(list->ai_family);
  if (!socket || (::connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0 &&
                  errno != EINPROGRESS && errno != EINTR)) {
    trouble = cause(errno);
    return {};
  }
  return socket;
}

bool is_connected(const FileDescriptor& connection, std::string& trouble) {
  int fault = 0;
  socklen_t size = sizeof fault;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &fault, &size) != 0) fault = errno;
  if (fault != 0) trouble = cause(fault);
  return fault == 0;
}

bool send_all(const FileDescriptor& connection, std::string_view bytes,
              SteadyClock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    pollfd writable{.fd = connection.get(), .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&writable, 1, poll_timeout(deadline));
    if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
  }
  return true;
}

int poll_timeout(SteadyClock::time_point until) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now()).count();
  constexpr std::int64_t kMost = 3'600'000;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, kMost));
}

}  // namespace tessera::trainer
