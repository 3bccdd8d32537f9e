// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lib/base/error.h"
#include "lib/base/numbers.h"

namespace tessera::memory {

namespace {

struct Word {
  std::string_view kind;
  std::int64_t count = 0;
};

Word parse(std::string_view which) {
  if (which == kAllBlocks) return {"every-", 1};
  for (const std::string_view kind : {"first-", "last-", "every-"}) {
    if (!which.starts_with(kind)) continue;
    const auto count = parse_integer(which.substr(kind.size()));
    if (count && *count >= 1) return {kind, *count};
  }
  throw Error(ExitCode::input, "checkpointing_blocks", fmt::format("'{}' names no blocks", which),
              "all, first-N, last-N or every-N");
}

}  // namespace

RecomputeMask recompute_mask(Checkpointing checkpointing, std::int64_t blocks,
                             std::string_view which) {
  const Keep keep = checkpointing == Checkpointing::none        ? Keep::all
                    : checkpointing == Checkpointing::selective ? Keep::selective
                                                                : Keep::input;
  const Word word = parse(which);
  RecomputeMask mask(static_cast<std::size_t>(blocks), Keep::all);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const bool is_meant = word.kind == "first-"  ? block < word.count
                          : word.kind == "last-" ? block >= blocks - word.count
                                                 : block % word.count == 0;
    if (is_meant) mask[static_cast<std::size_t>(block)] = keep;
  }
  return mask;
}

std::string usual_blocks(Checkpointing checkpointing, std::int64_t blocks, std::string_view which) {
  if (recompute_mask(checkpointing, blocks, which) == recompute_mask(checkpointing, blocks))
    return std::string(kAllBlocks);
  const Word word = parse(which);
  return fmt::format("{}{}", word.kind, word.count);
}

bool keeps(Keep keep, std::string_view part) {
  switch (keep) {
    case Keep::all:
      return true;
    case Keep::selective:
      return part != "norm1" && part != "norm2" && part != "act";
    case Keep::input:
      return part == "x";
  }
  return false;
}

}  // namespace tessera::memory
