// SPDX-License-Identifier: Apache-2.0
// The table of readers, and the lookup of the one that a file is for.
#pragma once

#include <filesystem>
#include <span>

#include "collect/readers/reader.h"

namespace tessera::collect {

// Returns all readers, ours first. Their names differ.
std::span<const Reader* const> readers();

// Returns the first reader that recognises the file's head; nullptr if none does, or if the file
// cannot be read.
const Reader* reader_of(const std::filesystem::path& path);

}  // namespace tessera::collect
