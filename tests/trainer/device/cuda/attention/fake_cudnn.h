// SPDX-License-Identifier: Apache-2.0
// A fake cuDNN that records what it is told. Programs link it instead of the library (it defines
// cudnn() of trainer/device/cuda/libraries/libraries.h), so that tests can look at each call and
// engines behave as a test wants. It throws std::logic_error for what the real one would refuse.
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
  std::int64_t config_bytes = 0;  // workspace according to its configuration
  std::int64_t plan_bytes = 0;    // workspace according to its plan
  cudnnStatus_t plan_status = CUDNN_STATUS_SUCCESS;
};

// A recorded operation with its tensors.
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
  std::vector<FakeEngine> offered;  // by the heuristics, for every graph
  std::vector<FakeEngine> fixed;    // only by their index and knobs

  struct Execution {
    std::int64_t engine = 0;
    std::map<std::int64_t, void*> addresses;
    std::map<std::int64_t, float> numbers;  // values at the addresses of scalars
    void* workspace = nullptr;
    cudaStream_t stream = nullptr;
  };
  std::vector<Execution> executions;
  std::vector<std::vector<ToldOperation>> graphs;
  int streams_set = 0;
  int plans_tried = 0;
  int descriptors = 0;  // alive now
  int handles = 0;
};

FakeCudnn& fake_cudnn();

}  // namespace tessera::trainer::test
