#include "lib/memory/recompute.h"

namespace tessera::memory {

RecomputeMask recompute_mask(Checkpointing checkpointing, std::int64_t blocks) {
  const Keep keep = checkpointing == Checkpointing::none        ? Keep::all
                    : checkpointing == Checkpointing::selective ? Keep::selective
                                                                : Keep::input;
  return RecomputeMask(static_cast<std::size_t>(blocks), keep);
}

bool keeps(Keep keep, std::string_view part) {
  switch (keep) {
    case Keep::all:
      return true;
    case Keep::selective:
      return part != "norm1" && part != "norm2" && part != "act";
    case Keep::input:
      return false;
  }
  return false;
}

}  // namespace tessera::memory
