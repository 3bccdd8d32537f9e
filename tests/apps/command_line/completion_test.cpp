// SPDX-License-Identifier: Apache-2.0
// The completion scripts in their shells. zsh and fish are asked where they are installed.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "tests/apps/command_line/programs.h"

using namespace tessera;
using test::Words;

namespace {

using Offer = std::set<std::string>;

struct Case {
  std::string program;
  Words typed;  // the last word is completed
  Offer offered;
};

const Offer kSubmitVerbs{"status",  "logs", "cancel", "rerun",
                         "rebuild", "init", "doctor", "completion"};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"submit", {""}, kSubmitVerbs},
      {"submit", {"lo"}, {"logs"}},
      {"submit", {"re"}, {"rerun", "rebuild"}},
      {"submit", {"logs", "--"}, {"--help", "--follow", "--attempt", "--project", "--workspace"}},
      {"submit", {"logs", "p", "r", "--f"}, {"--follow"}},
      {"submit", {"--workspace", "/", "status", "--w"}, {"--watch", "--workspace"}},
      {"submit", {"--only", ""}, {"missing", "failed", "oom", "unknown", "stale", "all"}},
      {"submit", {"rerun", "--time", ""}, {"auto"}},
      {"submit", {"-m", "7b", "--RU"}, {"--RUN"}},
      {"submit", {"status", ""}, {}},
      {"submit", {"completion", ""}, {"bash", "zsh", "fish"}},
      {"submit", {"logs", "--attempt", ""}, {}},
      {"collect", {"--format", "m"}, {"mosaic"}},
      {"collect", {"show", "--fi"}, {"--filters"}},
      {"trainer", {"selftest", "--parts", "b"}, {"bits"}},
      {"trainer", {"measure-peak", "--th"}, {"--threads"}},
  };
  return all;
}

std::string script_of(const std::string& program, const std::string& shell) {
  const CommandResult result = test::run_program(
      program, program == "submit" ? Words{"completion", shell} : Words{"--completion", shell});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  return result.out;
}

bool is_installed(const char* shell) {
  if (run_command({shell, "-c", "exit 0"}).exit_code == 0) return true;
  fmt::print("skipped: {} is not installed\n", shell);
  return false;
}

// In an empty folder where the scripts of all programs lie as PROGRAM.SHELL.
CommandResult in_shell(const std::string& shell, const Words& command) {
  const test::TemporaryFolder folder;
  for (const char* program : test::kPrograms)
    std::ofstream(folder / (std::string(program) + "." + shell)) << script_of(program, shell);
  Words words{"/usr/bin/env", "-C", folder.path().string(), "HOME=" + folder.path().string()};
  words.insert(words.end(), command.begin(), command.end());
  return run_command(words);
}

// One line a case: words, separated by spaces.
void check_offers(const CommandResult& result) {
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  const Words lines = test::lines_of(result.out);
  REQUIRE(lines.size() == cases().size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CAPTURE(fmt::format("{} {}", cases()[i].program, fmt::join(cases()[i].typed, " ")));
    std::istringstream stream(lines[i]);
    Offer offered;
    for (std::string word; stream >> word;) offered.insert(word);
    CHECK(offered == cases()[i].offered);
  }
}

std::string typed_line(const Case& each) {
  return fmt::format("{} {}", each.program, fmt::join(each.typed, " "));
}

}  // namespace

TEST_CASE("bash completes verbs, flags and values") {
  std::string script = "set -u; for each in *.bash; do source $each; done\n";
  for (const Case& each : cases()) {
    script += fmt::format("COMP_WORDS=({0}", each.program);
    for (const std::string& word : each.typed) script += fmt::format(" '{}'", word);
    script += fmt::format("); COMP_CWORD={}; COMPREPLY=(); _{}; echo ${{COMPREPLY[*]-}}\n",
                          each.typed.size(), each.program);
  }
  check_offers(in_shell("bash", {"bash", "-c", script}));
}

TEST_CASE("bash completes --flag=value, files and folders") {
  const CommandResult result = in_shell("bash", {"bash", "-c", R"(
source submit.bash
mkdir 'a folder'; touch 'a file'
offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _submit; printf '%s;' "${COMPREPLY[@]}"; echo; }
offer submit --only = mi
offer submit --only =
offer submit --sweep a
offer submit --workspace a
offer submit -c x a
complete -p submit)"});
  CHECK(result.err.empty());
  const Words lines = test::lines_of(result.out);
  REQUIRE(lines.size() == 6);
  CHECK(lines[0] == "missing;");
  CHECK(lines[1] == "missing;failed;oom;unknown;stale;all;");
  CHECK((lines[2] == "a folder;a file;" || lines[2] == "a file;a folder;"));
  CHECK(lines[3] == "a folder;");
  CHECK((lines[4] == "a folder;a file;" || lines[4] == "a file;a folder;"));
  CHECK(lines[5] == "complete -F _submit submit");
}

TEST_CASE("zsh completes verbs, flags and values") {
  if (!is_installed("zsh")) return;
  // A shell in a pseudo terminal: a key that lists what would be completed, and prints all that
  // was offered.
  std::string script = R"(
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'PS1=; unset zle_bracketed_paste; autoload -U compinit; compinit -u -D'
zpty -w z 'compadd() { if [[ " $* " == *" -[OAD] "* ]]; then builtin compadd "$@"; else local -a found; builtin compadd -O found "$@"; seen+=("$found[@]"); builtin compadd "$@"; fi }'
zpty -w z 'probe() { seen=(); zle list-choices; print -r -- "<""<${(j: :)seen}>"">"; BUFFER=""; }; zle -N probe; bindkey "^T" probe'
zpty -w z 'for each in *.zsh; do source $each; done; print "<""<ready>"">"'
zpty -r -m z all '*<<ready>>*'
offer() {
  zpty -w -n z "$1"$'\x14'
  zpty -r -m z all '*<<*>>*'
  print -r -- "${${all##*<<}%%>>*}"
}
)";
  for (const Case& each : cases()) script += fmt::format("offer '{}'\n", typed_line(each));
  check_offers(in_shell("zsh", {"timeout", "120", "zsh", "-f", "-c", script}));
}

TEST_CASE("fish completes verbs, flags and values") {
  if (!is_installed("fish")) return;
  std::string script = "for each in *.fish; source $each; end\n";
  for (const Case& each : cases())
    script +=
        fmt::format("echo (complete -C '{}' | string replace -r '\\t.*' '')\n", typed_line(each));
  check_offers(in_shell("fish", {"fish", "--no-config", "-c", script}));
}
