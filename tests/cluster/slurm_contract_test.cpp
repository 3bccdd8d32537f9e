// SPDX-License-Identifier: Apache-2.0
// The promises of every scheduler, kept by a real Slurm.
#include <doctest/doctest.h>

#include "tests/cluster/slurm_place.h"

using namespace tessera::test;

TEST_CASE("Slurm: a job from hand-over to its end") {
  contract_one_job(slurm_place());
}
TEST_CASE("Slurm: a job that fails") {
  contract_failing_job(slurm_place());
}
TEST_CASE("Slurm: a run's environment") {
  contract_environment(slurm_place());
}
TEST_CASE("Slurm: jobs are cancelled with a moment for their footers") {
  contract_cancel(slurm_place());
}
TEST_CASE("Slurm: runs of a job follow each other") {
  contract_two_runs(slurm_place());
}
TEST_CASE("Slurm: a lost id is looked up by name") {
  contract_lost_id(slurm_place());
}
TEST_CASE("Slurm: jobs that nobody knows are absent") {
  contract_absent(slurm_place());
}
TEST_CASE("Slurm: an attempt is handed over once") {
  contract_conflict(slurm_place());
}
TEST_CASE("Slurm: what the caller throws on acceptance") {
  contract_accepted_throws(slurm_place());
}
TEST_CASE("Slurm: jobs are checked without being handed over") {
  contract_check(slurm_place());
}
TEST_CASE("Slurm: the site is asked, and nothing is started") {
  contract_examine_site(slurm_place());
}
TEST_CASE("Slurm: a node is looked at") {
  contract_probe(slurm_place());
}
