// Which trainer this is.
#pragma once

namespace tessera::trainer {

extern const char* const kVersion;  // of the project
extern const char* const kCommit;   // at configure time, "-dirty" with changes; empty if unknown

}  // namespace tessera::trainer
