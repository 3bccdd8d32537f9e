#include "trainer/device/gpu.h"

#include <cstdlib>
#include <string>

namespace tessera::trainer {

std::filesystem::path default_choice_cache() {
  const auto variable = [](const char* name) -> std::string {
    const char* text = std::getenv(name);
    return text != nullptr ? text : "";
  };
  std::filesystem::path folder = variable("XDG_CACHE_HOME");
  if (folder.empty()) {
    const std::string home = variable("HOME");
    if (home.empty()) return {};
    folder = std::filesystem::path(home) / ".cache";
  }
  return folder / "tessera" / "gemm-v1.json";
}

}  // namespace tessera::trainer
