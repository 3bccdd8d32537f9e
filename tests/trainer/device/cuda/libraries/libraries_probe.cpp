// SPDX-License-Identifier: Apache-2.0
// Opens NVIDIA's libraries in a process of its own, whose environment says where they are, and
// prints the result. Needs no GPU (cudnn_support_test.cpp says how).
//
//   libraries_probe plan               by libraries.h, up to a compiled plan of attention
//   libraries_probe nvrtc FILE         that file alone, and compiles a kernel
//   libraries_probe cudnn FILE         that file alone, and makes a descriptor
#include <cudnn.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <string>
#include <string_view>

#include "apps/submit/plan/make_plan.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "trainer/device/cuda/attention/attention_engines.h"
#include "trainer/device/cuda/libraries/libraries.h"
#include "trainer/device/cuda/libraries/library_search.h"

using namespace tessera;
using namespace tessera::trainer::cuda;

namespace {

void* opened(const char* file) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) throw Error(ExitCode::io, file, dlerror());
  return handle;
}

template <class Function>
Function* function_of(void* library, const char* name, Function* /*type*/) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) throw Error(ExitCode::io, name, dlerror());
  return reinterpret_cast<Function*>(symbol);
}
#define FUNCTION(library, name) function_of(library, #name, &(name))

void compile(void* nvrtc) {
  nvrtcProgram program = nullptr;
  FUNCTION(nvrtc, nvrtcCreateProgram)
  (&program, "__global__ void k(float* x) { x[threadIdx.x] = __expf(x[0]); }", "k.cu", 0, nullptr,
   nullptr);
  const char* const options[] = {"--gpu-architecture=sm_90"};
  fmt::print("nvrtcCompileProgram {}\n",
             static_cast<int>(FUNCTION(nvrtc, nvrtcCompileProgram)(program, 1, options)));
  std::size_t size = 0;
  FUNCTION(nvrtc, nvrtcGetProgramLogSize)(program, &size);
  std::string log(size, ' ');
  FUNCTION(nvrtc, nvrtcGetProgramLog)(program, log.data());
  fmt::print("{}\n", log.c_str());
}

void make_descriptor(void* library) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  fmt::print("cudnnBackendCreateDescriptor {}\n",
             static_cast<int>(FUNCTION(library, cudnnBackendCreateDescriptor)(
                 CUDNN_BACKEND_TENSOR_DESCRIPTOR, &descriptor)));
}

void make_plan() {
  opened(TESSERA_CUDA_STUB);
  fmt::print("cudnn {} {}\n", cudnn().version, cudnn().path.string());
  AttentionGraphKey key{AttentionPass::forward, 2, 2048, 32, 8, 128};
  key.ld_qkv = 48 * 128;
  key.ld_out = 32 * 128;
  key.ld_lse = 2048;
  const Descriptor properties = device_properties(read_file("tests/data/gpus/h100.json"));
  const Gpu h100{nullptr, &properties, 90};
  const OperationGraph graph(attention_graph(key), nullptr);
  const std::vector<EngineConfig> configs = attention_configs(graph, key.pass, h100);
  fmt::print("offered {}\n", configs.size());
  if (!configs.empty()) fmt::print("plan {}\n", try_plan(configs.front(), h100).message);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  try {
    if (what == "plan" && argc == 2) {
      make_plan();
    } else if (what == "nvrtc" && argc == 3) {
      compile(opened(argv[2]));
    } else if (what == "cudnn" && argc == 3) {
      make_descriptor(opened(argv[2]));
    } else {
      return 2;
    }
  } catch (const Error& error) {
    fmt::print("error {} {}\n", static_cast<int>(error.code()), error.what());
  }
  for (const char* beginning : {"libcudnn", "libnvrtc"}) {
    for (const auto& file : open_files(beginning)) fmt::print("open {}\n", file.string());
  }
  return 0;
}
