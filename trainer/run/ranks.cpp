// SPDX-License-Identifier: Apache-2.0
#include "trainer/run/ranks.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/base/crc32.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/base/process.h"
#include "lib/base/version.h"
#include "trainer/launch/sockets.h"

namespace tessera::trainer {

namespace {

using Json = nlohmann::ordered_json;

// The slowest rank may first have to check a token file of many gigabytes.
constexpr std::chrono::milliseconds kExchangeLimit = std::chrono::minutes(30);

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

// Returns this process's CPUs as "0-7,16".
std::string cpus_text() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return "";
  std::string text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    int last = cpu;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &allowed)) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpu);
    if (last > cpu) text += fmt::format("-{}", last);
    cpu = last;
  }
  return text;
}

// Facts cross the store as JSON; a rank that writes other members is another trainer.
std::string json_of(const RankFacts& facts) {
  Json json;
  json["host"] = facts.host;
  json["node"] = facts.node;
  json["device"] = facts.device;
  json["memory_bytes"] = facts.memory_bytes;
  json["cpus"] = facts.cpus;
  json["software"] = facts.software;
  json["spec_crc32"] = facts.spec_crc32;
  json["addresses"] = facts.addresses;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankFacts facts_in(const std::string& text, int rank) {
  try {
    const Json json = Json::parse(text);
    return {.host = json.at("host"),
            .node = json.at("node"),
            .device = json.at("device"),
            .memory_bytes = json.at("memory_bytes"),
            .cpus = json.at("cpus"),
            .software = json.at("software"),
            .spec_crc32 = json.at("spec_crc32"),
            .addresses = json.at("addresses")};
  } catch (const Json::exception&) {
    throw Error(ExitCode::spec, fmt::format("rank {}", rank), "is another trainer than rank 0",
                "start the same program everywhere");
  }
}

// Returns the local address that reaches `host`. Connecting a datagram socket sends nothing.
std::string local_address_to(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  constexpr const char* kAnyPort = "9";
  if (::getaddrinfo(host.c_str(), kAnyPort, &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const FileDescriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  auto* const address = reinterpret_cast<sockaddr*>(&local);
  std::array<char, NI_MAXHOST> text{};
  if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::getsockname(socket.get(), address, &size) != 0 ||
      ::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text.data();
}

}  // namespace

RankFacts facts_of(const sweep::RunSpec& spec, const Place& place, const std::string& device,
                   std::int64_t memory_bytes, const Environment& variable) {
  RankFacts facts{.host = host_name(),
                  .node = place.node,
                  .device = device,
                  .memory_bytes = memory_bytes,
                  .cpus = cpus_text(),
                  .software = fmt::format("{} {}", kVersion, kCommit),
                  .spec_crc32 = tessera::crc32(sweep::run_spec_json(spec))};
  if (place.nodes > 1) {
    for (const Address& address : listen_for(place, variable).addresses)
      facts.addresses.push_back(address.host);
  }
  return facts;
}

std::vector<std::string> exchange(Store* store, const Place& place, const std::string& what,
                                  const std::string& own) {
  if (store == nullptr) return {own};
  const auto key = [&](int rank) { return fmt::format("{}.{}", what, rank); };
  store->set(key(place.rank), own);
  std::vector<std::string> all;
  for (int rank = 0; rank < place.ranks; ++rank)
    all.push_back(rank == place.rank ? own : store->get(key(rank), kExchangeLimit));
  return all;
}

std::vector<RankFacts> exchange_facts(Store* store, const Place& place, const RankFacts& own) {
  std::vector<RankFacts> all;
  for (const std::string& text : exchange(store, place, "facts", json_of(own)))
    all.push_back(facts_in(text, static_cast<int>(all.size())));
  return all;
}

void require_alike(const std::vector<RankFacts>& ranks) {
  const RankFacts& first = ranks.front();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFacts& one = ranks[rank];
    const auto differ = [&](std::string_view what, std::string_view fix) {
      throw Error(ExitCode::spec, fmt::format("rank {} on {}", rank, one.host), what, fix);
    };
    if (one.software != first.software)
      differ(fmt::format("is trainer {}, rank 0 is {}", one.software, first.software),
             "start the same program everywhere");
    if (one.spec_crc32 != first.spec_crc32)
      differ("has another run specification than rank 0", "give all ranks the same one");
    if (one.device != first.device)
      differ(fmt::format("has {}, rank 0 has {}", one.device, first.device),
             "ranks of one run need devices of one kind");
  }
}

// Ranks with the same CPUs on the same machine share them equally. Ranks that a scheduler has bound
// to different CPUs keep their own.
int cpus_of(const std::vector<RankFacts>& ranks, int rank) {
  const RankFacts& own = ranks[index(rank)];
  const auto sharing = std::ranges::count_if(ranks, [&](const RankFacts& one) {
    return one.node == own.node && one.host == own.host && one.cpus == own.cpus;
  });
  return std::max(1, usable_cpus() / std::max(1, static_cast<int>(sharing)));
}

std::int64_t memory_of_rank(const std::vector<RankFacts>& ranks) {
  std::int64_t least = 0;
  for (const RankFacts& own : ranks) {
    if (own.memory_bytes == 0) return 0;
    const auto there = std::ranges::count_if(
        ranks, [&](const RankFacts& one) { return one.node == own.node && one.host == own.host; });
    const std::int64_t share = own.memory_bytes / std::max<std::int64_t>(1, there);
    least = least == 0 ? share : std::min(least, share);
  }
  return least;
}

// Tries the addresses of a rank on another node: the local address that reaches one of them is the
// one to listen on.
std::string host_of(const std::vector<RankFacts>& ranks, int rank) {
  const RankFacts& own = ranks[index(rank)];
  const auto elsewhere =
      std::ranges::find_if(ranks, [&](const RankFacts& one) { return one.node != own.node; });
  if (elsewhere == ranks.end() || own.addresses.empty()) return "127.0.0.1";
  const auto is_own = [&](const std::string& address) {
    return std::ranges::find(own.addresses, address) != own.addresses.end();
  };
  for (const std::string& address : elsewhere->addresses) {
    // Container bridges have the same address on every machine.
    if (is_own(address)) continue;
    const std::string local = local_address_to(address);
    if (is_own(local)) return local;
  }
  return own.addresses.front();
}

// The communicator has only sums: each rank adds zeros in the places of the others.
RankFigures worst_of(Communicator& communicator, const RankFigures& own) {
  constexpr std::size_t kFigures = 6;
  if (communicator.size() == 1) return own;
  const std::size_t size = index(communicator.size());
  std::vector<double> all(size * kFigures);
  const std::array<double, kFigures> values{own.measured_s, own.median_s,       own.data_wait_s,
                                            own.startup_s,  own.mem_peak_bytes, -own.cpu_share};
  std::ranges::copy(
      values, all.begin() + static_cast<std::ptrdiff_t>(index(communicator.rank()) * kFigures));
  const auto elements = static_cast<std::int64_t>(all.size());
  communicator.all_reduce_sum(
      Stream::compute,
      {.data = all.data(), .dtype = DType::f64, .rows = 1, .cols = elements, .ld = elements});
  const auto largest = [&](std::size_t figure) {
    double most = all[figure];
    for (std::size_t rank = 1; rank < size; ++rank)
      most = std::max(most, all[rank * kFigures + figure]);
    return most;
  };
  return {.measured_s = largest(0),
          .median_s = largest(1),
          .data_wait_s = largest(2),
          .startup_s = largest(3),
          .mem_peak_bytes = largest(4),
          .cpu_share = -largest(5)};
}

std::string failure_text(const RankFailure& failure) {
  return fmt::format("exit {}: {}", static_cast<int>(failure.code), failure.reason);
}

// Parses failure_text. A code outside of its range cannot be a rank's, so it counts as a
// communication error.
RankFailure failure_in(const std::string& text) {
  constexpr std::string_view kExit = "exit ";
  const std::size_t colon = text.find(": ");
  if (text.starts_with(kExit) && colon != std::string::npos) {
    const auto code = parse_integer(text.substr(kExit.size(), colon - kExit.size()));
    if (code && *code >= static_cast<int>(ExitCode::spec) &&
        *code <= static_cast<int>(ExitCode::log_not_writable))
      return {static_cast<ExitCode>(*code), text.substr(colon + 2)};
  }
  return {ExitCode::comm_error, text};
}

}  // namespace tessera::trainer
