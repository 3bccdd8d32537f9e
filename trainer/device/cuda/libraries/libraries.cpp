// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/libraries/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <vector>

#include "lib/base/error.h"
#include "trainer/device/cuda/libraries/library_search.h"

#if TESSERA_HAS_CUDNN
#include "trainer/device/cuda/libraries/cudnn_library.h"
#endif

namespace tessera::trainer::cuda {

namespace {

namespace fs = std::filesystem;

template <class Function>
void find(const Library& library, const char* name, Function& function) {
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
  const Library library =
      require_library(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), library_folders());
  CublasLt lt;
  lt.path = library.path;
#define TESSERA_FIND(function) find(library, #function, lt.function);
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  lt.version = version_text(lt.cublasLtGetVersion(), 10000, 100);
  return lt;
}

#if TESSERA_HAS_CUDNN
// Opens the run-time compiler's built-in headers (libnvrtc-builtins.so.13.0) before the compiler.
// The compiler opens them by name and has no folder of its own to look in, so it cannot compile
// unless the loader finds them or they are open.
void open_nvrtc(const std::vector<fs::path>& folders) {
  const Library nvrtc =
      require_library(fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000), folders);
  for (const fs::path& file : files_beside(nvrtc.path, "libnvrtc-builtins.so."))
    ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

Cudnn open_cudnn() {
  // The order matters: cuDNN opens cuBLASLt and the compiler by name, and ends the program if it
  // does not find cuBLASLt.
  cublas_lt();
  const std::vector<fs::path> folders = library_folders();
  open_nvrtc(folders);
  const Library library =
      require_library(fmt::format("libcudnn.so.{}", CUDNN_MAJOR), folders, why_not_cudnn);
  open_cudnn_parts(library.path);
  Cudnn cudnn;
  cudnn.path = library.path;
#define TESSERA_FIND(function) find(library, #function, cudnn.function);
  TESSERA_CUDNN_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  const std::size_t version = cudnn.cudnnGetVersion();
  if (const std::string faults = cudnn_faults(library.path); !faults.empty()) {
    throw Error(ExitCode::unsupported, library.path.string(),
                fmt::format("its parts are not to be used together{}", faults),
                "a folder with all of one cuDNN, and LD_LIBRARY_PATH without another");
  }
  cudnn.version = version_text(version, 10000, 100);
  return cudnn;
}
#endif

}  // namespace

void* try_open_library(const std::string& name) {
  std::string faults;
  return find_library(name, library_folders(), {}, faults).handle;
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
