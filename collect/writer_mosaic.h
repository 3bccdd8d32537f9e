// SPDX-License-Identifier: Apache-2.0
// The tables of MosaicML llm-foundry's collect_results.py: the 20 published columns alone, rounded
// down as published, of rows with a result. For tools that read those.
#pragma once

#include <span>
#include <string>

#include "collect/row.h"

namespace tessera::collect {

std::string mosaic_csv(std::span<const Row> rows);  // CRLF line ends, as there
std::string mosaic_markdown(std::span<const Row> rows);

}  // namespace tessera::collect
