// A cuDNN that only keeps what it is told: for programs that are linked with it in place of the
// library (it defines cudnn() of trainer/device/cuda/libraries/libraries.h), so that each call can
// be looked at, and engines behave as a test wants. What the real one would refuse is a
// std::logic_error.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "trainer/device/cuda/attention/cudnn_graph.h"
#include "trainer/device/cuda/attention/tensor_graph.h"

namespace tessera::trainer::test {

struct FakeEngine {
  std::int64_t index = 0;
  std::vector<cuda::Knob> knobs = {};
  std::int64_t config_bytes = 0;  // of workspace, as its configuration says
  std::int64_t plan_bytes = 0;    // as its plan does
  cudnnStatus_t plan_status = CUDNN_STATUS_SUCCESS;
};

// An operation as it was told, with its tensors.
struct ToldOperation {
  cuda::Step step = cuda::Step::copy;
  cudnnDataType_t computes_in = CUDNN_DATA_FLOAT;
  std::int64_t axis = 0;
  std::vector<cuda::GraphTensor> in;
  cuda::GraphTensor out;
  bool operator==(const ToldOperation&) const = default;
};

struct FakeCudnn {
  std::size_t version = 91900;
  cudnnStatus_t create_status = CUDNN_STATUS_SUCCESS;
  std::vector<FakeEngine> offered;  // by the heuristics, to every graph
  std::vector<FakeEngine> fixed;    // only by their index and knobs

  struct Execution {
    std::int64_t engine = 0;
    std::map<std::int64_t, void*> addresses;
    std::map<std::int64_t, float> numbers;  // what stands at addresses, of those passed by value
    void* workspace = nullptr;
    cudaStream_t stream = nullptr;
  };
  std::vector<Execution> executions;
  std::vector<std::vector<ToldOperation>> graphs;
  int streams_set = 0;
  int plans_tried = 0;
  int descriptors = 0;  // that exist
  int handles = 0;
};

FakeCudnn& fake_cudnn();

}  // namespace tessera::trainer::test
