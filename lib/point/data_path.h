// SPDX-License-Identifier: Apache-2.0
// What a point's `data` may say: the name of a data set, of which there is "synthetic", or the path
// of a token file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tessera::sweep {

// True for a path: it has a slash or a dot. So a misspelt name is never taken for a file.
bool names_file(std::string_view data);

// The path as a point holds it: absolute, from `folder` where it was written relative, without "."
// and ".."; symbolic links stay as they are. A name stays a name.
std::string located_data(const std::string& written, const std::filesystem::path& folder);

}  // namespace tessera::sweep
