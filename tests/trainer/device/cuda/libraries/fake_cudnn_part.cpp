// SPDX-License-Identifier: Apache-2.0
// A library with the name of one of cuDNN's parts. It tells a version and has no functions that do
// anything. As libcudnn itself (without a version) it must not be called at all.
#include <cstddef>
#include <cstdlib>

#ifdef TESSERA_FAKE_VERSION
extern "C" std::size_t cudnnGetVersion() {
  return TESSERA_FAKE_VERSION;
}
extern "C" std::size_t cudnnGetCudartVersion() {
  return TESSERA_FAKE_CUDA;
}
#else
extern "C" std::size_t cudnnGetVersion() {
  std::abort();
}
extern "C" std::size_t cudnnGetCudartVersion() {
  std::abort();
}
#endif
