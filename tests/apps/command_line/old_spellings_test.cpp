// SPDX-License-Identifier: Apache-2.0
// What was typed before goes on working, in silence: the same words on stdout and stderr, the same
// exit code as with the new spelling.
#include "lib/cli/old_spellings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tests/apps/command_line/programs.h"

using namespace tessera;
using test::Words;

namespace {

struct Row {
  std::string program;
  Words before;
  Words now;
};

Words plan(Words words) {
  words.insert(words.end(), {"--batch_sizes", "8", "--json"});
  return words;
}

// One for each row of the table, in its order.
const std::vector<Row>& rows() {
  static const Words gpus{"-m", "7b", "-c", "mpt-published", "--microbatch_size", "1"};
  const auto on_gpus = [](const Words& words) {
    Words all = gpus;
    all.insert(all.end(), words.begin(), words.end());
    return plan(all);
  };
  static const std::vector<Row> all{
      {"submit", {"--rebuild", "--help"}, {"rebuild", "--help"}},
      {"submit", plan({"--model_yamls", "cpu-2m", "125m"}), plan({"--models", "cpu-2m", "125m"})},
      {"submit", plan({"--model_yaml", "cpu-2m"}), plan({"--models", "cpu-2m"})},
      {"submit", on_gpus({"--precision", "fp16"}), on_gpus({"--precisions", "fp16"})},
      {"submit", on_gpus({"--types=fp16"}), on_gpus({"--precisions=fp16"})},
      {"submit", plan({"-m", "cpu-2m", "--microbatch_sizes", "2", "4"}),
       plan({"-m", "cpu-2m", "--microbatch_size", "2", "4"})},
      {"submit", on_gpus({"--gpu_nums", "8", "16"}), on_gpus({"--gpus", "8", "16"})},
      {"submit", on_gpus({"--gpu_num", "8"}), on_gpus({"--gpus", "8"})},
      {"submit", on_gpus({"--gpu_type", "a100_40gb"}), on_gpus({"--gpu_types", "a100_40gb"})},
      {"submit", plan({"-m", "7b", "--cluster", "mpt-published"}),
       plan({"-m", "7b", "--clusters", "mpt-published"})},
      {"submit", on_gpus({"--fsdp_config_mixed_precision", "PURE"}),
       on_gpus({"--mixed_precision", "PURE"})},
      {"submit", on_gpus({"--fsdp_config_shard_strategy", "SHARD_GRAD_OP"}),
       on_gpus({"--sharding_strategy", "SHARD_GRAD_OP"})},
      {"submit", on_gpus({"--fsdp_config_activation_checkpointing", "false"}),
       on_gpus({"--activation_checkpointing", "none"})},
      {"trainer", {"--capabilities"}, {"capabilities"}},
      {"trainer", {"--threads", "2", "--measure-peak", "--help"}, {"measure-peak", "--help"}},
      {"trainer", {"--print-schedule", "--help"}, {"print-schedule", "--help"}},
      {"trainer", {"--bench-ops", "--gpu", "--help"}, {"bench-ops", "--help"}},
      {"trainer", {"--parts", "bits", "--selftest", "--help"}, {"selftest", "--help"}},
      {"trainer", {"--pack-bytes", "-", "a.txt"}, {"pack-bytes", "-", "a.txt"}},
  };
  return all;
}

void check_same(const std::string& program, const Words& before, const Words& now, int code) {
  CAPTURE(fmt::format("{} {}", program, fmt::join(before, " ")));
  const CommandResult was = test::run_program(program, before);
  const CommandResult is = test::run_program(program, now);
  CHECK(is.exit_code == code);
  CHECK(was.exit_code == is.exit_code);
  CHECK(was.out == is.out);
  CHECK(was.err == is.err);
  CHECK(!(is.out.empty() && is.err.empty()));
}

}  // namespace

TEST_CASE("each row of the table: the old spelling does what the new one does") {
  const auto table = cli::old_spellings();
  REQUIRE(table.size() == rows().size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Row& row = rows()[i];
    CAPTURE(table[i].old);
    CHECK(row.program == table[i].program);
    const auto holds = [](const Words& words, std::string_view wanted) {
      return std::ranges::any_of(
          words, [&](const std::string& word) { return word.substr(0, word.find('=')) == wanted; });
    };
    CHECK(holds(row.before, table[i].old));
    const std::string now(table[i].now);
    CHECK((holds(row.now, now) || now == "--activation_checkpointing"));
    const bool is_refused = row.now.front() == "pack-bytes";
    check_same(row.program, row.before, row.now, is_refused ? 2 : 0);
  }
}

TEST_CASE("flags may stand before their verb") {
  check_same("submit", {"--workspace", "w", "status", "p"}, {"status", "p", "--workspace", "w"}, 4);
  check_same("submit", {"--watch", "--project", "p", "status"}, {"status", "--watch", "p"}, 4);
  check_same("submit", {"--project=p", "--attempt", "2", "logs", "r"},
             {"logs", "p", "r", "--attempt", "2"}, 4);
  check_same("submit", {"--help", "doctor"}, {"doctor", "--help"}, 0);
  check_same("submit", {"--rebuild", "--project", "p"}, {"rebuild", "p"}, 4);
  check_same("submit", {"rebuild", "--rebuild", "p"}, {"rebuild", "p"}, 4);
  check_same("submit", {"doctor", "--cluster", "nowhere"}, {"doctor", "nowhere"}, 3);
  check_same("submit", {"status", "--version"}, {"--version"}, 0);
  check_same("collect", {"--filters", "a", "b", "show", "r"}, {"show", "r", "--filters", "a", "b"},
             2);
  // A value is no verb, and a verb's argument no flag's value.
  check_same("submit", {"--project", "status", "status"}, {"status", "--project", "status"}, 4);
  check_same("collect", {"--logs", "none", "show", "--", "r"}, {"show", "r", "--logs", "none"}, 6);
}
