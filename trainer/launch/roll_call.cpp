// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/roll_call.h"

#include <fmt/format.h>

#include <functional>

namespace tessera::trainer {

namespace {

using NodeOf = std::function<int(int rank)>;

// Returns the expected node of each rank; -1 for all if it cannot be known.
NodeOf expected_nodes(const std::vector<int>& node_of, int nodes) {
  const int ranks = static_cast<int>(node_of.size());
  NodeOf unknown = [](int) { return -1; };
  if (nodes <= 1 || ranks % nodes != 0) return unknown;
  const int per_node = ranks / nodes;
  for (const NodeOf& order : {NodeOf([=](int rank) { return rank / per_node; }),
                              NodeOf([=](int rank) { return rank % nodes; })}) {
    bool fits = true;
    for (int rank = 0; rank < ranks; ++rank) {
      const int node = node_of[static_cast<std::size_t>(rank)];
      fits = fits && (node < 0 || node == order(rank));
    }
    if (fits) return order;
  }
  return unknown;
}

}  // namespace

std::string missing_ranks(const std::vector<int>& node_of, int nodes) {
  constexpr int kMostGroups = 8;
  const NodeOf expected = expected_nodes(node_of, nodes);
  const int ranks = static_cast<int>(node_of.size());
  const auto is_missing = [&](int rank) { return node_of[static_cast<std::size_t>(rank)] < 0; };
  std::string text;
  int groups = 0;
  int missing = 0;
  for (int first = 0; first < ranks;) {
    int last = first;
    if (!is_missing(first)) {
      ++first;
      continue;
    }
    while (last + 1 < ranks && is_missing(last + 1) && expected(last + 1) == expected(first))
      ++last;
    missing += last - first + 1;
    if (++groups <= kMostGroups) {
      text += groups > 1 ? ", " : "";
      text += last > first ? fmt::format("{}-{}", first, last) : fmt::format("{}", first);
      if (expected(first) >= 0) text += fmt::format(" of node {}", expected(first));
    }
    first = last + 1;
  }
  if (missing == 0) return {};
  if (groups > kMostGroups) text += ", ...";
  if (missing == 1) return fmt::format("rank {} has not come", text);
  if (groups > kMostGroups)
    return fmt::format("ranks {} ({} of {}) have not come", text, missing, ranks);
  return fmt::format("ranks {} have not come", text);
}

}  // namespace tessera::trainer
