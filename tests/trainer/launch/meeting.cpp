// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/launch/meeting.h"

#include <doctest/doctest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/base/file.h"
#include "trainer/launch/open_store.h"
#include "trainer/launch/rendezvous.h"

namespace tessera::trainer::test {

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Place place(int rank, int ranks, int nodes, const std::string& job) {
  const int per_node = ranks / nodes;
  return {.rank = rank,
          .ranks = ranks,
          .local_rank = rank % per_node,
          .node = rank / per_node,
          .nodes = nodes,
          .from = "TESSERA_*",
          .job = job};
}

Outcome outcome_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::exception& error) {
    return {std::nullopt, error.what()};
  }
}

std::vector<Outcome> run_threads(int count, const std::function<void(int)>& body) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back(
        [&, i] { outcomes[static_cast<std::size_t>(i)] = outcome_of([&] { body(i); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<Outcome> run_ranks(int ranks, const std::string& folder,
                               const std::function<void(int, Store&)>& body) {
  return run_threads(ranks, [&](int rank) {
    const auto store =
        open_store(place(rank, ranks), {.run_dir = folder, .limit = kLong}, environment_of({}));
    body(rank, *store);
  });
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void wait_until(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + kLong;
  while (!holds()) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Announced wait_for_rendezvous(const std::string& folder) {
  Announced announced;
  wait_until([&] {
    const auto text = read_file_if_exists(rendezvous_path(folder, 1, 0));
    if (text) announced.text = *text;
    return text.has_value();
  });
  const auto json = nlohmann::json::parse(announced.text);
  const auto address = parse_address(json.at("addresses").at(0).get<std::string>());
  REQUIRE(address.has_value());
  REQUIRE(address->host == "127.0.0.1");
  announced.port = address->port;
  announced.token = json.at("token").get<std::string>();
  return announced;
}

}  // namespace tessera::trainer::test
