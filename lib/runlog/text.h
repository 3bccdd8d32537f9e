// SPDX-License-Identifier: Apache-2.0
// Text for records: cut to a length in bytes without breaking UTF-8, and made valid UTF-8 where it
// is not.
#pragma once

#include <string>
#include <string_view>

namespace tessera::runlog {

// At most `bytes` bytes; "..." marks a cut. Invalid UTF-8 becomes '?', so that every record is
// valid JSON.
std::string cut_text(std::string_view text, std::size_t bytes);

}  // namespace tessera::runlog
