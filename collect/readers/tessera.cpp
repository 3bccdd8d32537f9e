// SPDX-License-Identifier: Apache-2.0
#include "collect/readers/tessera.h"

namespace tessera::collect {

namespace {

// One record among other lines is enough: what a scheduler captured of ranks begins with its own.
// Records of a newer schema are ours too: the reader says that it cannot read them.
bool has_our_record(std::string_view head) {
  constexpr std::string_view kAnySchema = R"({"tessera":)";
  for (std::size_t begin = 0; begin < head.size();) {
    if (head.substr(begin).starts_with(kAnySchema)) return true;
    const std::size_t end = head.find('\n', begin);
    if (end == std::string_view::npos) return false;
    begin = end + 1;
  }
  return false;
}

}  // namespace

const Reader& tessera_reader() {
  static const Reader kReader{.engine = "tessera",
                              .name = "tessera 1",
                              .recognises = &has_our_record,
                              .read = &runlog::read_log_file};
  return kReader;
}

}  // namespace tessera::collect
