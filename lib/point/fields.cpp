// SPDX-License-Identifier: Apache-2.0
#include "lib/point/fields.h"

#include <fmt/format.h>

#include "lib/schedule/recompute.h"

namespace tessera::sweep {

namespace {

// Each member has a row, but for lr, which is in the model's JSON.
struct Anything {
  template <class T>
  constexpr operator T() const;
};
template <class T, class... Members>
consteval std::size_t member_count() {
  if constexpr (requires { T{Members{}..., Anything{}}; }) {
    return member_count<T, Members..., Anything>();
  } else {
    return sizeof...(Members);
  }
}
static_assert(member_count<Point>() == kFieldCount + 1, "a member of Point without a row");

}  // namespace

void check_blocks(const Value& blocks) try {
  memory::recompute_mask(Checkpointing::full, 1, blocks.text);
} catch (const Error&) {
  bad_value(blocks, fmt::format("'{}' names no blocks", blocks.text),
            "all, first-N, last-N or every-N");
}

}  // namespace tessera::sweep
