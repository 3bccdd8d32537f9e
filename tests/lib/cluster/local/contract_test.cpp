// SPDX-License-Identifier: Apache-2.0
// The promises of every scheduler, kept by this machine.
#include <doctest/doctest.h>

#include "lib/base/process.h"
#include "lib/cluster/local/scheduler.h"
#include "tests/lib/cluster/scheduler_contract.h"
#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::test;

namespace {

// The place of one test case.
class Local {
 public:
  ContractPlace place() const {
    return {.make =
                [](const auto& trainer) {
                  return cluster::local_scheduler({.name = "local", .gpus = {{.name = "cpu"}}},
                                                  trainer, user_name());
                },
            .folder = folder_.path(),
            .spoil = {}};
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("this machine: a job from hand-over to its end") {
  contract_one_job(Local().place());
}
TEST_CASE("this machine: a job that fails") {
  contract_failing_job(Local().place());
}
TEST_CASE("this machine: a run's environment") {
  contract_environment(Local().place());
}
TEST_CASE("this machine: jobs are cancelled with a moment for their footers") {
  contract_cancel(Local().place());
}
TEST_CASE("this machine: a job of several runs is refused") {
  contract_two_runs(Local().place());
}
TEST_CASE("this machine: a lost id is looked up by name") {
  contract_lost_id(Local().place());
}
TEST_CASE("this machine: jobs that nobody knows are absent") {
  contract_absent(Local().place());
}
TEST_CASE("this machine: an attempt is handed over once") {
  contract_conflict(Local().place());
}
TEST_CASE("this machine: what the caller throws on acceptance") {
  contract_accepted_throws(Local().place());
}
TEST_CASE("this machine: jobs are checked without being handed over") {
  contract_check(Local().place());
}
TEST_CASE("this machine: there is no site to ask") {
  contract_examine_site(Local().place());
}
TEST_CASE("this machine: a node is looked at") {
  contract_probe(Local().place());
}
