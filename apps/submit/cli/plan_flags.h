// SPDX-License-Identifier: Apache-2.0
// The command line of a plan and its submission: what submit takes without a verb. Numbers are read
// by lib/base/numbers: CLI11 reads `011` as 9 and saturates overflows in silence.
#pragma once

#include "apps/submit/cli/flag_grid.h"
#include "apps/submit/cli/foundry_flags.h"
#include "apps/submit/cli/submission_flags.h"
#include "apps/submit/request.h"
#include "lib/cli/command.h"

namespace tessera::apps {

class PlanFlags {
 public:
  // To be called once; the command refers to this from then on.
  void declare(cli::Command& submit);

  // What they ask for, once `submit` has parsed. Error(usage) for a wrong command line,
  // Error(refused) for what is understood but comes later, Error(input) for a wrong sweep file.
  SubmitRequest request() const;

 private:
  SubmitRequest request_;
  GridFlags grid_;
  SubmissionFlags submission_;
  FoundryFlags foundry_;
};

}  // namespace tessera::apps
