// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/libraries/cudnn_library.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <system_error>
#include <vector>

namespace tessera::trainer::cuda {

namespace {

namespace fs = std::filesystem;

// Since 9.16 keys beyond the last whole tile are masked without being told so; since 9.18 passes
// that promise the same bits keep that promise on Hopper and Blackwell.
constexpr std::size_t kOldestVersion = 91800;

std::string part_ending() {
  return fmt::format(".so.{}", CUDNN_MAJOR);
}

// Returns the parts in the order to open them, libcudnn_graph first: the others need it.
std::vector<fs::path> parts_beside(const fs::path& library) {
  constexpr std::string_view kGraph = "libcudnn_graph";
  constexpr std::array<std::string_view, 3> kOlder = {"libcudnn_adv", "libcudnn_cnn",
                                                      "libcudnn_ops"};
  std::vector<fs::path> parts = files_beside(library, "libcudnn_");
  std::erase_if(parts, [&](const fs::path& part) {
    const std::string name = part.filename().string();
    if (!name.ends_with(part_ending())) return true;
    return std::ranges::any_of(kOlder, [&](std::string_view old) { return name.starts_with(old); });
  });
  std::ranges::stable_partition(
      parts, [&](const fs::path& part) { return part.filename().string().starts_with(kGraph); });
  return parts;
}

std::optional<std::size_t> number_of(const Library& part, const char* function) {
  auto* const ask = reinterpret_cast<std::size_t (*)()>(::dlsym(part.handle, function));
  if (ask == nullptr) return std::nullopt;
  return ask();
}

}  // namespace

std::optional<std::string> why_too_old(std::size_t version) {
  if (version >= kOldestVersion) return std::nullopt;
  return fmt::format("cuDNN {}.{}.{} is too old for attention, which needs 9.18.0", version / 10000,
                     version % 10000 / 100, version % 100);
}

std::optional<std::string> why_not_cudnn(LinkNamespace& link_namespace, const fs::path& library) {
  const std::string name = fmt::format("libcudnn_graph{}", part_ending());
  const std::vector<fs::path> beside = files_beside(library, name);
  const auto file = std::ranges::find(
      beside, name, [](const fs::path& part) { return part.filename().string(); });
  if (file == beside.end()) return fmt::format("no {} lies beside it", name);
  const Library graph = link_namespace.open(*file);
  if (graph.handle == nullptr) return fmt::format("cannot be asked: {}", ::dlerror());
  const auto version = number_of(graph, "cudnnGetVersion");
  const auto cuda = number_of(graph, "cudnnGetCudartVersion");
  if (!version || !cuda) return fmt::format("{} beside it does not tell its version", name);
  constexpr std::size_t kCuda = CUDART_VERSION / 1000;
  if (*cuda / 1000 != kCuda) {
    return fmt::format("cuDNN {}.{}.{} is for CUDA {}, the trainer for CUDA {}", *version / 10000,
                       *version % 10000 / 100, *version % 100, *cuda / 1000, kCuda);
  }
  return why_too_old(*version);
}

void open_cudnn_parts(const fs::path& library) {
  // RTLD_LAZY: few of their functions are called.
  for (const fs::path& part : parts_beside(library))
    ::dlopen(part.c_str(), RTLD_LAZY | RTLD_GLOBAL);
}

std::string cudnn_faults(const fs::path& library) {
  std::string faults;
  const std::vector<fs::path> parts = parts_beside(library);
  for (const fs::path& part : parts) {
    if (void* handle = ::dlopen(part.c_str(), RTLD_LAZY | RTLD_GLOBAL)) {
      ::dlclose(handle);  // drops the reference of this dlopen
    } else {
      faults += fmt::format("; {}", ::dlerror());
    }
  }
  for (const fs::path& open : open_files("libcudnn_")) {
    const auto is_open = [&](const fs::path& part) {
      std::error_code fault;
      return fs::equivalent(part, open, fault);
    };
    if (std::ranges::none_of(files_beside(library, "libcudnn_"), is_open))
      faults += fmt::format("; {} was opened from elsewhere", open.string());
  }
  return faults;
}

}  // namespace tessera::trainer::cuda
