// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/gloo/module.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

namespace tessera::trainer::comm {
namespace {

// Gloo waits five times this long for a peer to connect.
constexpr std::chrono::milliseconds kConnectTimeout = std::chrono::seconds(12);
// Gloo has no wait without a limit, so this is a year.
constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 365);

using Buffer = gloo::transport::UnboundBuffer;

}  // namespace

extern "C" {

// Gloo makes an object of each buffer. Here one buffer spans all memory, so that an offset is an
// address and no message makes a new one. Each peer and lane has its own, which counts its messages
// and keeps its failure.
struct GlooLink {
  int rank = 0;
  int size = 0;
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::transport::Context> context;
  std::vector<std::array<std::unique_ptr<Buffer>, kLanes>> buffers;  // by peer
};
}

namespace {

void tell(char* error, const char* what) {
  std::snprintf(error, kErrorBytes, "%s", what);
}

template <class F>
int guarded(char* error, F f) {
  try {
    f();
    return 0;
  } catch (const std::exception& fault) {
    tell(error, fault.what());
  } catch (...) {
    tell(error, "an unknown fault");
  }
  return -1;
}

Buffer& buffer(GlooLink* link, int peer, int lane) {
  return *link->buffers.at(static_cast<std::size_t>(peer)).at(static_cast<std::size_t>(lane));
}

std::size_t offset_of(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

GlooLink* open_link(int rank, int size, const char* interface, const char* host, char* error) {
  std::unique_ptr<GlooLink> link;
  const int fault = guarded(error, [&] {
    link = std::make_unique<GlooLink>();
    link->rank = rank;
    link->size = size;
    gloo::transport::tcp::attr attr;
    if (interface != nullptr) attr.iface = interface;
    if (host != nullptr) attr.hostname = host;
    link->device = gloo::transport::tcp::CreateDevice(attr);
    link->context = link->device->createContext(rank, size);
    link->context->setTimeout(kConnectTimeout);
    link->buffers.resize(static_cast<std::size_t>(size));
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      link->context->createPair(peer);
      for (auto& lane : link->buffers[static_cast<std::size_t>(peer)]) {
        lane = link->context->createUnboundBuffer(nullptr, std::numeric_limits<std::size_t>::max());
      }
    }
  });
  return fault == 0 ? link.release() : nullptr;
}

int addresses(GlooLink* link, unsigned char* out, std::size_t* bytes, char* error) {
  return guarded(error, [&] {
    *bytes = 0;
    for (int peer = 0; peer < link->size; ++peer) {
      if (peer == link->rank) continue;
      const std::vector<char> address = link->context->getPair(peer)->address().bytes();
      if (*bytes != 0 && *bytes != address.size())
        throw std::runtime_error("addresses of different sizes");
      *bytes = address.size();
      if (out != nullptr)
        std::memcpy(out + static_cast<std::size_t>(peer) * *bytes, address.data(), *bytes);
    }
    if (out != nullptr) std::memset(out + static_cast<std::size_t>(link->rank) * *bytes, 0, *bytes);
  });
}

int connect(GlooLink* link, int peer, const unsigned char* address, std::size_t bytes,
            char* error) {
  return guarded(error, [&] {
    const char* begin = reinterpret_cast<const char*>(address);
    link->context->getPair(peer)->connect(std::vector<char>(begin, begin + bytes));
  });
}

int send(GlooLink* link, int peer, int lane, const void* data, std::size_t bytes, char* error) {
  return guarded(error, [&] {
    buffer(link, peer, lane).send(peer, static_cast<std::uint64_t>(lane), offset_of(data), bytes);
  });
}

int receive(GlooLink* link, int peer, int lane, void* data, std::size_t bytes, char* error) {
  return guarded(error, [&] {
    buffer(link, peer, lane).recv(peer, static_cast<std::uint64_t>(lane), offset_of(data), bytes);
  });
}

int wait_sent(GlooLink* link, int peer, int lane, char* error) {
  return guarded(error, [&] {
    if (!buffer(link, peer, lane).waitSend(nullptr, kNoLimit)) throw std::runtime_error("released");
  });
}

int wait_received(GlooLink* link, int peer, int lane, char* error) {
  return guarded(error, [&] {
    if (!buffer(link, peer, lane).waitRecv(nullptr, kNoLimit)) throw std::runtime_error("released");
  });
}

void release(GlooLink* link) {
  for (auto& lanes : link->buffers) {
    for (auto& lane : lanes) {
      if (!lane) continue;
      lane->abortWaitRecv();
      lane->abortWaitSend();
    }
  }
}

void linger(GlooLink* link, int lane, int milliseconds) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::milliseconds(milliseconds);
  std::array<char, kErrorBytes> ignored{};
  for (int peer = 0; peer < link->size; ++peer) {
    if (peer == link->rank) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    // A wait that runs out of time would make Gloo end all connections.
    if (left.count() <= 0) return;
    guarded(ignored.data(), [&] { buffer(link, peer, lane).waitRecv(nullptr, left); });
  }
}

// Pair::close would reset the connection and lose what was sent last, so it is not used.
void close_link(GlooLink* link) {
  delete link;
}

constexpr GlooModule kModule{.version = kGlooModuleVersion,
                             .open = open_link,
                             .addresses = addresses,
                             .connect = connect,
                             .send = send,
                             .receive = receive,
                             .wait_sent = wait_sent,
                             .wait_received = wait_received,
                             .release = release,
                             .linger = linger,
                             .close = close_link};

}  // namespace

extern "C" __attribute__((visibility("default"))) const GlooModule* tessera_gloo_module() {
  return &kModule;
}

}  // namespace tessera::trainer::comm
