// SPDX-License-Identifier: Apache-2.0
// What a wrong command line gets: exit code 2 and one line that names the word and what to do.
#include "tests/apps/command_line/programs.h"

using tessera::test::usage_fault;
using tessera::test::Words;

TEST_CASE("an unknown verb or flag gets the nearest that there is") {
  CHECK(usage_fault("submit", {"statsu"}) == "statsu: is no verb of submit; did you mean status?");
  CHECK(usage_fault("submit", {"--seqlens", "1"}) ==
        "--seqlens: is no flag of submit; did you mean --seq_lens?");
  CHECK(usage_fault("submit", {"--run"}) == "--run: is no flag of submit; did you mean --RUN?");
  CHECK(usage_fault("submit", {"logs", "--atempt", "1"}) ==
        "--atempt: is no flag of submit logs; did you mean --attempt?");
  CHECK(usage_fault("submit", {"--model", "7b"}) ==
        "--model: is no flag of submit; did you mean --models?");
  CHECK(usage_fault("collect", {"--filter", "7b"}) ==
        "--filter: is no flag of collect; did you mean --filters?");
  CHECK(usage_fault("trainer", {"selftset"}) ==
        "selftset: is no verb of trainer; did you mean selftest?");
  CHECK(usage_fault("trainer", {"selftest", "--part", "bits"}) ==
        "--part: is no flag of trainer selftest; did you mean --parts?");
  // Near to a flag of another verb.
  CHECK(usage_fault("submit", {"status", "--folow"}) ==
        "--folow: is no flag of submit status; did you mean submit logs --follow?");
  // Near to an old spelling.
  CHECK(usage_fault("trainer", {"--selftset"}) ==
        "--selftset: is no flag of trainer; did you mean trainer selftest?");
  CHECK(usage_fault("submit", {"--model_yamsl", "7b"}) ==
        "--model_yamsl: is no flag of submit; did you mean submit --models?");
  // One dash: CLI11 would read -m and its value "odels".
  CHECK(usage_fault("submit", {"-models", "7b"}) == "-models: is no flag; did you mean --models?");
}

TEST_CASE("what is near to nothing gets the way to the list") {
  CHECK(usage_fault("submit", {"myproject"}) ==
        "myproject: is no verb of submit; give a project with --project, a sweep with --sweep");
  CHECK(usage_fault("submit", {"status", "--frobnicate"}) ==
        "--frobnicate: is no flag of submit status; submit status --help lists them");
  CHECK(usage_fault("submit", {"-x"}) == "-x: is no flag of submit; submit --help lists them");
  CHECK(usage_fault("trainer", {"frobnicate"}) ==
        "frobnicate: is no verb of trainer; trainer --help lists them");
  CHECK(usage_fault("submit", {""}) ==
        "'': is no verb of submit; give a project with --project, a sweep with --sweep");
}

TEST_CASE("a flag of another verb is refused with what to write") {
  CHECK(usage_fault("submit", {"--watch"}) ==
        "--watch: does not go with submit; write submit status --watch");
  CHECK(usage_fault("submit", {"logs", "--watch"}) ==
        "--watch: does not go with submit logs; write submit status --watch");
  for (const Words& words : {Words{"status", "-m", "7b"}, {"-m", "7b", "status"}}) {
    CHECK(usage_fault("submit", words) ==
          "-m: does not go with submit status; leave it out; submit status --help lists what does");
  }
  CHECK(usage_fault("submit", {"status", "--rebuild"}) ==
        "--rebuild: does not go with submit status; write submit rebuild");
  CHECK(usage_fault("collect", {"show", "r", "-p"}) ==
        "-p: does not go with collect show; leave it out; collect show --help lists what does");
  CHECK(usage_fault("trainer", {"bench-ops", "--parts", "bits"}) ==
        "--parts: does not go with trainer bench-ops; write trainer selftest --parts");
  CHECK(usage_fault("trainer", {"--threads", "2"}) ==
        "--threads: does not go with trainer; it goes with trainer selftest, trainer bench-ops, "
        "trainer measure-peak");
  CHECK(usage_fault("trainer", {"capabilities", "--profile"}) ==
        "--profile: does not go with trainer capabilities; leave it out; trainer capabilities "
        "--help lists what does");
  CHECK(usage_fault("trainer", {"--bench-ops", "--measure-peak"}) ==
        "--measure-peak: does not go with trainer bench-ops; write trainer measure-peak");
}

TEST_CASE("too many arguments, none, or a value that is missing or empty") {
  CHECK(usage_fault("submit", {"status", "a", "b"}) == "b: status takes one project; leave it out");
  CHECK(usage_fault("submit", {"logs", "a", "b", "c"}) == "c: logs takes one run; leave it out");
  CHECK(usage_fault("submit", {"init", "a", "b"}) ==
        "b: is too much for submit init; leave it out");
  CHECK(usage_fault("submit", {"init"}) == "NAME: is missing; write submit init NAME");
  CHECK(usage_fault("submit", {"completion"}) ==
        "SHELL: is missing; write submit completion bash|zsh|fish");
  CHECK(usage_fault("submit", {"completion", "csh"}) ==
        "completion: 'csh' is no shell that it knows; write bash, zsh or fish");
  CHECK(usage_fault("submit", {"logs", "--attempt"}) == "--attempt: needs a value");
  CHECK(usage_fault("submit", {"logs", "--attempt", "0"}) ==
        "--attempt: 0 is out of range; from 1 to 1000000");
  CHECK(usage_fault("submit", {"status", ""}) == "PROJECT: is empty");
  CHECK(usage_fault("submit", {"status", "--project", ""}) == "--project: is empty");
  CHECK(usage_fault("submit", {"status", "--project", "a", "--project", "b"}) ==
        "--project: is given twice; give it once");
  CHECK(usage_fault("collect", {"--completion", "csh"}).find("write bash, zsh or fish") !=
        std::string::npos);
}
