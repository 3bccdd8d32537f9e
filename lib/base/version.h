// SPDX-License-Identifier: Apache-2.0
// The version of this build, the same in all programs, logs and ledgers.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// The project's version, 0.SCHEMA.PATCH: SCHEMA is that of the run log (lib/runlog/record.h).
extern const char* const kVersion;
// The commit at configure time, "-dirty" with changes; empty if unknown.
extern const char* const kCommit;

// The answer of a program to --version: "submit 0.1.0 6f12ab34cd56".
std::string version_line(std::string_view program);

}  // namespace tessera
