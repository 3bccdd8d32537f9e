// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/libraries/library_search.h"

#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ranges>
#include <set>
#include <system_error>

#include "lib/base/error.h"
#include "lib/base/process.h"

namespace tessera::trainer::cuda {

namespace {

namespace fs = std::filesystem;

// Returns a folder's entries, sorted; none if it cannot be read.
std::vector<fs::path> children(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code fault;
  for (fs::directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault))
    found.push_back(it->path());
  std::ranges::sort(found);
  return found;
}

std::vector<fs::path> children(const fs::path& folder, std::string_view beginning) {
  std::vector<fs::path> found = children(folder);
  std::erase_if(found, [&](const fs::path& file) {
    return !file.filename().string().starts_with(beginning);
  });
  return found;
}

// Splits a list of folders at its colons, without the empty parts.
std::vector<fs::path> folders_of(const std::string& list) {
  std::vector<fs::path> folders;
  for (const auto part : std::views::split(list, ':')) {
    const std::string_view folder(part.begin(), part.end());
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

// Adds site-packages/nvidia/*/lib of a Python environment.
void add_python_folders(const fs::path& environment, std::vector<fs::path>& folders) {
  for (const fs::path& python : children(environment / "lib", "python")) {
    for (const fs::path& package : children(python / "site-packages" / "nvidia"))
      folders.push_back(package / "lib");
  }
}

fs::path path_of(void* handle, const fs::path& asked) {
  const link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map->l_name[0] == '\0')
    return asked;
  return map->l_name;
}

// Returns the path without links, as far as they can be resolved.
fs::path real_path(const fs::path& file) {
  std::error_code fault;
  fs::path real = fs::canonical(file, fault);
  return fault ? file : real;
}

// Returns "in a, by the loader, in c"; packages of one Python environment are named together.
std::string folders_text(std::span<const fs::path> folders) {
  std::vector<std::string> texts;
  for (const fs::path& folder : folders) {
    std::string text = fmt::format("in {}", folder.string());
    const fs::path packages = folder.parent_path().parent_path();
    if (folder.empty()) {
      const std::string list = environment_variable("LD_LIBRARY_PATH");
      text =
          list.empty() ? "by the loader" : fmt::format("by the loader (LD_LIBRARY_PATH={})", list);
    } else if (packages.filename() == "nvidia") {
      text = fmt::format("in {}", (packages / "*" / "lib").string());
    }
    if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Returns the library's files in these folders whose version, the part after ".so.", differs.
std::vector<fs::path> other_versions(const std::string& name, std::span<const fs::path> folders) {
  constexpr std::string_view kSuffix = ".so.";
  const std::size_t suffix = name.find(kSuffix);
  if (suffix == std::string::npos) return {};
  const std::string stem = name.substr(0, suffix + kSuffix.size());
  std::vector<fs::path> found;
  const auto add = [&](const fs::path& file) {
    if (!file.filename().string().starts_with(name) &&
        std::ranges::find(found, file) == found.end())
      found.push_back(file);
  };
  for (const fs::path& folder : folders) {
    if (!folder.empty()) {
      std::ranges::for_each(children(folder, stem), add);
      continue;
    }
    for (const fs::path& named : folders_of(environment_variable("LD_LIBRARY_PATH")))
      std::ranges::for_each(children(named, stem), add);
    // The loader's own search cannot be listed: open each version to see whether it is there.
    int version = 0;
    const char* const digits = name.data() + stem.size();
    if (std::from_chars(digits, name.data() + name.size(), version).ec != std::errc()) continue;
    LinkNamespace link_namespace;
    for (const int other : {version - 1, version + 1}) {
      const Library library = link_namespace.open(fmt::format("{}{}", stem, other));
      if (library.handle != nullptr) add(library.path);
    }
  }
  return found;
}

}  // namespace

LinkNamespace::~LinkNamespace() {
  for (void* handle : std::views::reverse(handles_)) ::dlclose(handle);
}

Library LinkNamespace::open(const fs::path& file) {
  // RTLD_LAZY: a check calls few functions of the library.
  void* handle = ::dlmopen(id_, file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return {};
  handles_.push_back(handle);
  if (id_ == LM_ID_NEWLM) ::dlinfo(handle, RTLD_DI_LMID, &id_);
  return {handle, path_of(handle, file)};
}

std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders = folders_of(environment_variable("TESSERA_CUDA_LIBRARIES"));
  folders.emplace_back();
  folders.emplace_back(TESSERA_CUDA_LIBRARY_FOLDER);
  folders.emplace_back("/usr/local/cuda/lib64");
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string environment = environment_variable(name); !environment.empty())
      add_python_folders(environment, folders);
  }
  return folders;
}

Library find_library(const std::string& name, std::span<const fs::path> folders,
                     const LibraryCheck& judge, std::string& faults) {
  LinkNamespace link_namespace;
  std::set<fs::path> refused;
  for (const fs::path& folder : folders) {
    fs::path file = folder.empty() ? fs::path(name) : folder / name;
    std::error_code fault;
    if (!folder.empty() && !fs::exists(file, fault)) continue;
    if (judge) {
      if (folder.empty()) {
        // Asks in a separate namespace which file the loader would take.
        const Library found = link_namespace.open(file);
        if (found.handle == nullptr) continue;
        file = found.path;
      }
      if (refused.contains(real_path(file))) continue;
      if (const auto why = judge(link_namespace, file)) {
        refused.insert(real_path(file));
        faults += fmt::format("; {}: {}", file.string(), *why);
        continue;
      }
    }
    // RTLD_GLOBAL: what a library opens by name then finds what was opened here by path.
    if (void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL))
      return {handle, path_of(handle, file)};
    if (!folder.empty()) faults += fmt::format("; {}", ::dlerror());
  }
  return {};
}

Library require_library(const std::string& name, std::span<const fs::path> folders,
                        const LibraryCheck& judge) {
  std::string faults;
  Library library = find_library(name, folders, judge, faults);
  if (library.handle != nullptr) return library;
  if (const std::vector<fs::path> others = other_versions(name, folders); !others.empty()) {
    std::vector<std::string> texts;
    for (const fs::path& other : others) texts.push_back(other.string());
    faults += fmt::format("; of other versions there is {}", fmt::join(texts, ", "));
  }
  throw Error(ExitCode::unsupported, name,
              fmt::format("none to be used; looked {}{}", folders_text(folders), faults),
              "name its folder in TESSERA_CUDA_LIBRARIES, or use gpu: cpu");
}

std::vector<fs::path> files_beside(const fs::path& library, std::string_view beginning) {
  std::vector<fs::path> found = children(library.parent_path(), beginning);
  return found.empty() ? children(real_path(library).parent_path(), beginning) : found;
}

std::vector<fs::path> open_files(std::string_view beginning) {
  struct Search {
    std::string_view beginning;
    std::vector<fs::path> found;
  } search{beginning, {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t /*size*/, void* data) {
        auto& [wanted, found] = *static_cast<Search*>(data);
        const fs::path file(info->dlpi_name);
        if (file.filename().string().starts_with(wanted)) found.push_back(file);
        return 0;
      },
      &search);
  return search.found;
}

}  // namespace tessera::trainer::cuda
