// SPDX-License-Identifier: Apache-2.0
// The parts that every fork and exec shares. What happens between the two is each caller's own.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace tessera {

// Pointers to the texts, then nullptr, as exec takes them. Valid as long as `texts` is unchanged.
std::vector<char*> exec_pointers(std::vector<std::string>& texts);

// "NAME=value" of each of this process's variables without those of `unset`, and of `changes`.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes,
                                          const std::vector<std::string>& unset);

// The exit code in what waitpid gave; 128 + n if signal n ended the process.
int exit_code_in(int wait_status);

// Waits until the child ends. Returns its exit code, as exit_code_in does.
int wait_for_exit(pid_t child);

}  // namespace tessera
