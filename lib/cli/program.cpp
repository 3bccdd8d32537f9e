#include "lib/cli/program.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <system_error>

namespace tessera::cli {

namespace {

int told(const char* name, const std::string& what, ExitCode code) {
  // "submit doctor: ..." says by itself whose word it is.
  const std::string verb = fmt::format("{} ", name);
  const std::string_view rest =
      what.starts_with(verb) ? std::string_view(what).substr(verb.size()) : what;
  std::fputs(fmt::format("{}: {}\n", name, rest).c_str(), stderr);
  return static_cast<int>(code);
}

}  // namespace

int run_program(const char* name, ExitCode unknown_fault, const std::function<int()>& run) {
  try {
    return run();
  } catch (const Error& error) {
    return told(name, error.what(), error.code());
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

}  // namespace tessera::cli
