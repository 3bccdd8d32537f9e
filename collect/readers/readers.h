// The table of readers, and which of them a file is for.
#pragma once

#include <filesystem>
#include <span>

#include "collect/readers/reader.h"

namespace tessera::collect {

// Ours first. Each differs from the others in name.
std::span<const Reader* const> readers();

// The first reader that recognises the file's head; nullptr if none does, or if it cannot be read.
const Reader* reader_of(const std::filesystem::path& path);

}  // namespace tessera::collect
