// SPDX-License-Identifier: Apache-2.0
// What tells rows apart beside the columns that a table shows anyway.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collect/row.h"

namespace tessera::collect {

struct Axis {
  std::string name;  // as on the command line: "threads", "env.OMP_PROC_BIND"
  std::function<std::string(const Row&)> text;  // empty: not known
};

// The axes of which `rows` have two known values or more, and which none of the columns `shown`
// shows. Names that only tell apart what one of these columns does already (label: Model) are left
// out.
std::vector<Axis> varying_axes(std::span<const Row* const> rows,
                               std::span<const std::string_view> shown);

}  // namespace tessera::collect
