// SPDX-License-Identifier: Apache-2.0
// The search for run-time libraries: their folders, the choice among several, the error if there is
// none.
//
// Several cuDNNs, of other versions or for another CUDA, may lie on one machine under the same
// name. A part that was once opened may stay until the program ends and answers to that name, so
// another cuDNN would get it as its own. Candidates are therefore checked in a separate link
// namespace (dlmopen).
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::trainer::cuda {

struct Library {
  void* handle = nullptr;
  std::filesystem::path path;  // the file that the loader opened
};

// Opens libraries in a link namespace that the rest of the program does not see. The destructor
// closes them; those that cannot be closed stay there, unseen. Not thread-safe.
class LinkNamespace {
 public:
  LinkNamespace() = default;
  ~LinkNamespace();
  LinkNamespace(const LinkNamespace&) = delete;
  LinkNamespace& operator=(const LinkNamespace&) = delete;

  // Opens a library. Null handle: dlerror() says why.
  Library open(const std::filesystem::path& file);

 private:
  Lmid_t id_ = LM_ID_NEWLM;
  std::vector<void*> handles_;
};

// Returns the folders to search, in this order; an empty folder is the loader's own search.
std::vector<std::filesystem::path> library_folders();

// Returns why a file is refused, in words that follow its path. Nothing: it is accepted.
using LibraryCheck = std::function<std::optional<std::string>(LinkNamespace& link_namespace,
                                                              const std::filesystem::path& file)>;

// Opens, for the whole program, the first of the folders' files `name` that the check accepts
// (without one: any). A null handle if there is none: `faults` then has a sentence, beginning with
// "; ", for each file that was there and was refused.
Library find_library(const std::string& name, std::span<const std::filesystem::path> folders,
                     const LibraryCheck& judge, std::string& faults);

// Returns the same, or throws Error(unsupported) with the folders, these sentences, and other
// versions of the library that were found instead.
Library require_library(const std::string& name, std::span<const std::filesystem::path> folders,
                        const LibraryCheck& judge = {});

// Returns the files beside a library whose names begin so, sorted: in the folder that it was opened
// from or, if there are none, in the folder that its link leads to.
std::vector<std::filesystem::path> files_beside(const std::filesystem::path& library,
                                                std::string_view beginning);

// Returns the program's open files whose names begin so.
std::vector<std::filesystem::path> open_files(std::string_view beginning);

}  // namespace tessera::trainer::cuda
