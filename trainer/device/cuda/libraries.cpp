#include "trainer/device/cuda/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ranges>
#include <string_view>
#include <system_error>

#include "lib/base/error.h"

namespace tessera::trainer::cuda {

namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

// site-packages/nvidia/*/lib of a Python environment.
void add_python_folders(const fs::path& environment, std::vector<fs::path>& folders) {
  const auto children = [](const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code fault;
    for (fs::directory_iterator it(folder, fault), end; !fault && it != end; it.increment(fault))
      found.push_back(it->path());
    std::ranges::sort(found);
    return found;
  };
  for (const fs::path& python : children(environment / "lib")) {
    if (!python.filename().string().starts_with("python")) continue;
    for (const fs::path& package : children(python / "site-packages" / "nvidia"))
      folders.push_back(package / "lib");
  }
}

struct Opened {
  void* handle = nullptr;
  fs::path path;
};

// The first of the folders' files `name` that can be opened; `reasons`: why others could not.
Opened find_library(const std::string& name, std::string& reasons) {
  for (const fs::path& folder : library_folders()) {
    // An empty folder is the loader's own search.
    const fs::path file = folder.empty() ? fs::path(name) : folder / name;
    std::error_code fault;
    if (!folder.empty() && !fs::exists(file, fault)) continue;
    // Global, so that what a library opens by name finds what was opened here by path.
    if (void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
      return {handle, file};
    }
    if (!folder.empty()) reasons += fmt::format("; {}", ::dlerror());
  }
  return {};
}

Opened open_library(const std::string& name) {
  std::string reasons;
  if (Opened opened = find_library(name, reasons); opened.handle != nullptr) return opened;
  throw Error(ExitCode::unsupported, name,
              fmt::format("not found in {}, by the loader or in an active Python environment{}",
                          TESSERA_CUDA_LIBRARY_FOLDER, reasons),
              "name its folder in TESSERA_CUDA_LIBRARIES, or use gpu: cpu");
}

template <class Function>
void find(const Opened& library, const char* name, Function& function) {
  void* symbol = ::dlsym(library.handle, name);
  if (symbol == nullptr) {
    throw Error(ExitCode::unsupported, library.path.string(),
                fmt::format("has no function {}", name),
                "a version that the trainer was built for");
  }
  function = reinterpret_cast<Function>(symbol);
}

std::string version_text(std::size_t version, std::size_t major_factor, std::size_t minor_factor) {
  return fmt::format("{}.{}.{}", version / major_factor, version % major_factor / minor_factor,
                     version % minor_factor);
}

CublasLt open_cublas_lt() {
  const Opened library = open_library(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR));
  CublasLt lt;
  lt.path = library.path;
#define TESSERA_FIND(function) find(library, #function, lt.function);
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  lt.version = version_text(lt.cublasLtGetVersion(), 10000, 100);
  return lt;
}

#if TESSERA_HAS_CUDNN
Cudnn open_cudnn() {
  open_library(fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000));
  const Opened library = open_library(fmt::format("libcudnn.so.{}", CUDNN_MAJOR));
  Cudnn cudnn;
  cudnn.path = library.path;
#define TESSERA_FIND(function) find(library, #function, cudnn.function);
  TESSERA_CUDNN_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  cudnn.version = version_text(cudnn.cudnnGetVersion(), 10000, 100);
  return cudnn;
}
#endif

}  // namespace

std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders;
  for (const auto part : std::views::split(variable("TESSERA_CUDA_LIBRARIES"), ':')) {
    const std::string_view folder(part.begin(), part.end());
    if (!folder.empty()) folders.emplace_back(folder);
  }
  folders.emplace_back();
  folders.emplace_back(TESSERA_CUDA_LIBRARY_FOLDER);
  folders.emplace_back("/usr/local/cuda/lib64");
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string environment = variable(name); !environment.empty())
      add_python_folders(environment, folders);
  }
  return folders;
}

void* try_open_library(const std::string& name) {
  std::string reasons;
  return find_library(name, reasons).handle;
}

const CublasLt& cublas_lt() {
  static const CublasLt only = open_cublas_lt();
  return only;
}

#if TESSERA_HAS_CUDNN
const Cudnn& cudnn() {
  static const Cudnn only = open_cudnn();
  return only;
}
#endif

}  // namespace tessera::trainer::cuda
