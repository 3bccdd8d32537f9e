// SPDX-License-Identifier: Apache-2.0
#include "lib/cli/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <system_error>

#include "lib/base/version.h"
#include "lib/cli/cli_error.h"
#include "lib/cli/completion.h"
#include "lib/cli/describe.h"
#include "lib/cli/help.h"
#include "lib/cli/old_spellings.h"

namespace tessera::cli {

namespace {

constexpr const char* kManFlag = "--man";
constexpr const char* kCompletionFlag = "--completion";

const Command& used_command(const Command& program) {
  const auto verbs = program.get_subcommands();
  return verbs.empty() ? program : dynamic_cast<const Command&>(*verbs.back());
}

int told(const char* name, const std::string& what, ExitCode code) {
  // "submit doctor: ..." says by itself whose word it is.
  const std::string verb = fmt::format("{} ", name);
  const std::string_view rest =
      what.starts_with(verb) ? std::string_view(what).substr(verb.size()) : what;
  std::fputs(fmt::format("{}: {}\n", name, rest).c_str(), stderr);
  return static_cast<int>(code);
}

}  // namespace

int run_program(const char* name, ExitCode unprinted, ExitCode unknown_fault,
                const std::function<int()>& run) {
  try {
    return run();
  } catch (const Error& error) {
    return told(name, error.what(), error.code());
  } catch (const std::system_error& error) {
    // fmt::print throws where a text is longer than stdout's buffer.
    if (std::ferror(stdout) == 0) return told(name, error.what(), unknown_fault);
    return told(name, "stdout: cannot be written: " + error.code().message(), unprinted);
  } catch (const std::exception& error) {
    return told(name, error.what(), unknown_fault);
  }
}

void require_printed(ExitCode code) {
  std::cout.flush();
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return;
  const std::string why =
      errno == 0 ? "" : ": " + std::error_code(errno, std::generic_category()).message();
  throw Error(code, "stdout", "cannot be written" + why);
}

std::vector<std::string> words_of(int argc, const char* const* argv) {
  return {argv + std::min(argc, 1), argv + argc};
}

void add_general_flags(Command& program, CompletionBy completion) {
  const char* group = kHelpGroup;
  program.set_version_flag("--version", version_line(program.get_name()), "Print the version")
      ->group(group);
  program.add_flag(kManFlag)->description("Print the manual page, for man -l -")->group(group);
  const char* const what = "Print the script by which a shell completes this command";
  if (completion == CompletionBy::flag) {
    program.add_option(kCompletionFlag, what)->type_name(kShells)->group(group);
    return;
  }
  Command& verb = program.add_verb("completion", what);
  verb.add_option("shell", "Your shell")->type_name(kShells)->required();
  const std::string name = full_name(verb);
  for (const char* shell : {"bash", "zsh"})
    verb.examples.push_back(
        {fmt::format("source <({} {})", name, shell),
         fmt::format("complete in this shell; in each: put it into ~/.{}rc", shell)});
  verb.examples.push_back({fmt::format("{} fish | source", name),
                           "complete in this shell; in each: put it into config.fish"});
  verb.action = [&program, &verb] {
    fmt::print("{}", completion_script(program, verb.get_option("shell")->as<std::string>()));
    return 0;
  };
}

int run_command_line(Command& program, const std::vector<std::string>& words, ExitCode unprinted) {
  const auto print = [&](const std::string& text) {
    fmt::print("{}", text);
    require_printed(unprinted);
    return 0;
  };
  std::vector<std::string> last_first = modern_words(program, words);
  std::ranges::reverse(last_first);
  try {
    program.parse(std::move(last_first));
  } catch (const CLI::CallForHelp&) {
    return print(help_text(used_command(program)));
  } catch (const CLI::Success& version) {
    return print(fmt::format("{}\n", version.what()));
  } catch (const CLI::ParseError& fault) {
    throw command_line_error(program, fault);
  }
  refuse_empty_values(program);
  if (program.count(kManFlag) > 0) return print(man_page(program));
  if (const CLI::Option* shell = program.get_option_no_throw(kCompletionFlag);
      shell != nullptr && shell->count() > 0)
    return print(completion_script(program, shell->as<std::string>()));
  return used_command(program).action();
}

}  // namespace tessera::cli
