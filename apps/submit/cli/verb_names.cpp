#include "apps/submit/cli/verb_names.h"

#include <fmt/format.h>

#include "lib/base/error.h"
#include "lib/ledger/state.h"
#include "lib/point/identity.h"

namespace tessera::apps {

VerbTarget target_of(const SubmitRequest& request) {
  const std::string verb = fmt::format("submit {}", request.verb);
  VerbTarget target{.project = request.project, .runs = request.names};
  if (target.project.empty() && !target.runs.empty()) {
    const std::string& first = target.runs.front();
    const std::size_t end = first.find("--");
    target.project = first.substr(0, end);
    if (end == std::string::npos) target.runs.erase(target.runs.begin());
  } else if (target.project.empty()) {
    const auto last = ledger::last_project();
    if (!last)
      throw Error(ExitCode::usage, verb, "which project?", fmt::format("write {} PROJECT", verb));
    target.project = *last;
  }
  if (const std::string fault = sweep::project_fault(target.project); !fault.empty()) {
    throw Error(ExitCode::usage, verb, fmt::format("project '{}' {}", target.project, fault),
                "the first name is a project's");
  }
  return target;
}

}  // namespace tessera::apps
