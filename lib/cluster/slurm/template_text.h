// SPDX-License-Identifier: Apache-2.0
// What a drafted cluster file is made of: scalars and comments that stay what they are, whatever
// names a site has. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cluster {

// A scalar, in a block or in a flow, that is read as this text.
std::string yaml_text(const std::string& text);
// Without what would end the comment.
std::string in_comment(std::string text);
// "a, b, c and 7 more", for a comment.
std::string listed(std::vector<std::string> names);
// "1 node", "2 nodes"
std::string plural(std::int64_t number, const char* what);
// "04:00:00", as cluster files and Slurm take it; of more than four days too.
std::string clock_text(std::int64_t seconds);

}  // namespace tessera::cluster
