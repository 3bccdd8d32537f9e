// What a program answers to --version.
#pragma once

#include <string>

namespace tessera::cli {

// "submit 0.1.0 6f12ab34cd56": name, version of the project, commit at configure time ("-dirty"
// with changes; nothing if it is unknown).
std::string version_line(const std::string& program);

}  // namespace tessera::cli
