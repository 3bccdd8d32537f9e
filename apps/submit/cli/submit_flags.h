// Reads the command line of submit. Numbers are read by lib/base/numbers: CLI11 reads `011` as
// 9 and saturates overflows in silence.
#pragma once

#include "apps/submit/request.h"

namespace tessera::apps {

// Error(usage) for a wrong command line, Error(refused) for what is understood but comes later,
// Error(input) for a wrong sweep file. `help_shown`: --help or --version was asked for and has been
// printed.
SubmitRequest parse_submit(int argc, const char* const* argv, bool& help_shown);

}  // namespace tessera::apps
