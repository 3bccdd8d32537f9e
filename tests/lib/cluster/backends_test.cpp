// SPDX-License-Identifier: Apache-2.0
// The table of backends, and whose template submit init takes.
#include "lib/cluster/backends.h"

#include <doctest/doctest.h>

#include <array>

#include "lib/base/error.h"

using namespace tessera;
using namespace tessera::cluster;

namespace {

ClusterTemplate no_site(const hardware::Catalogue& /*catalogue*/, const TemplateChoices& choices) {
  throw Error(ExitCode::unreachable, choices.name, "nobody there");
}
ClusterTemplate closed_site(const hardware::Catalogue& /*catalogue*/,
                            const TemplateChoices& choices) {
  throw Error(ExitCode::refused, choices.name, "not for you");
}
ClusterTemplate open_site(const hardware::Catalogue& /*catalogue*/,
                          const TemplateChoices& choices) {
  return {.yaml = {}, .about = "found " + choices.name, .notes = {}};
}

ExitCode template_code(std::span<const Backend> from) {
  try {
    write_template({}, {.name = "site", .partition = {}, .workspace = {}, .trainer = {}}, from);
    return ExitCode::ok;
  } catch (const Error& error) {
    return error.code();
  }
}

}  // namespace

TEST_CASE("each kind of cluster file has one backend") {
  for (const auto& [kind, name] : Names<Kind>::table) {
    Cluster cluster;
    cluster.name = name;
    cluster.kind = kind;
    CHECK(backend_of(cluster).kind == kind);
    if (backend_of(cluster).can_run()) continue;
    try {
      make_scheduler(cluster, "me");
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::refused);
      CHECK(std::string(error.what()).find("run on a cluster of kind local or slurm") !=
            std::string::npos);
    }
  }
  CHECK(backends().size() == std::size(Names<Kind>::table));
}

TEST_CASE("a scheduler is made by the backend of the file's kind, and says what the backend says") {
  for (const Backend& backend : backends()) {
    if (!backend.can_run()) continue;
    Cluster cluster;
    cluster.name = "one";
    cluster.kind = backend.kind;
    const auto scheduler = make_scheduler(cluster, "me");
    CHECK(scheduler->cluster().kind == backend.kind);
    CHECK(scheduler->queues() != backend.is_this_machine);
    CHECK((backend.gpus_at_once != nullptr) == backend.is_this_machine);
  }
}

TEST_CASE("submit init takes the first site that is there") {
  const Backend none{};
  const Backend absent{.write_template = &no_site};
  const Backend refusing{.write_template = &closed_site};
  const Backend there{.write_template = &open_site};
  const std::array first{none, absent, there, refusing};
  CHECK(write_template({}, {.name = "site", .partition = {}, .workspace = {}, .trainer = {}}, first)
            .about == "found site");
  CHECK(template_code(std::array{none, absent, refusing, there}) == ExitCode::refused);
  CHECK(template_code(std::array{none, absent, absent}) == ExitCode::unreachable);
}
