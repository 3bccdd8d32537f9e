// Where a library that is opened at run time lies, which of several is taken, and what is said
// where none is.
//
// Several cuDNN, of other versions or for another CUDA, may lie on one machine, and all of them
// have the same name. A part of one that was once opened may stay until the program ends and then
// answers to that name, so that another cuDNN would be given it for its own. Candidates are
// therefore asked in a name space of their own (dlmopen).
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
  std::filesystem::path path;  // the loader's: of a file, also where it was opened by name
};

// Opens libraries where nothing else in the program sees them; at its end they are closed, and
// those that cannot be stay there unseen. Not thread-safe.
class LinkNamespace {
 public:
  LinkNamespace() = default;
  ~LinkNamespace();
  LinkNamespace(const LinkNamespace&) = delete;
  LinkNamespace& operator=(const LinkNamespace&) = delete;

  // Null handle: dlerror() says why.
  Library open(const std::filesystem::path& file);

 private:
  Lmid_t id_ = LM_ID_NEWLM;
  std::vector<void*> handles_;
};

// Where to look, in this order; an empty folder is the loader's own search.
std::vector<std::filesystem::path> library_folders();

// Why a file is not the one to be taken, in words that follow its path; nothing: it is.
using LibraryCheck = std::function<std::optional<std::string>(LinkNamespace& link_namespace,
                                                              const std::filesystem::path& file)>;

// The first of the folders' files `name` that the judge takes (without one: any) and that can be
// opened, opened for all to see. A null handle if there is none: `faults` has a sentence for each
// file that was there and was not taken, each begun with "; ".
Library find_library(const std::string& name, std::span<const std::filesystem::path> folders,
                     const LibraryCheck& judge, std::string& faults);

// The same, or Error(unsupported): the folders, these sentences, and which other versions of the
// library were found instead.
Library require_library(const std::string& name, std::span<const std::filesystem::path> folders,
                        const LibraryCheck& judge = {});

// The files in the folder of a library whose names begin so, sorted: in the folder that it was
// opened from or, where there are none, in that of the file that a link there leads to.
std::vector<std::filesystem::path> files_beside(const std::filesystem::path& library,
                                                std::string_view beginning);

// The files that are open in the program and whose names begin so.
std::vector<std::filesystem::path> open_files(std::string_view beginning);

}  // namespace tessera::trainer::cuda
