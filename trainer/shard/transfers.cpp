// SPDX-License-Identifier: Apache-2.0
#include "trainer/shard/transfers.h"

namespace tessera::trainer {

namespace {

void move_block(const Pass& pass, std::int64_t layer, bool to_host) {
  const Memory& memory = pass.memory;
  const auto keep = memory.mask()[static_cast<std::size_t>(layer)];
  for (const memory::BlockTensor& tensor : memory::block_tensors(memory.config(), pass.sequences)) {
    if (!memory::keeps(keep, tensor.part)) continue;
    std::byte* device = memory.data(
        memory::block_buffer(memory.mask(), true, layer, tensor.part, memory::Made::forward));
    std::byte* host = memory.data(memory::host_buffer(layer, tensor.part));
    pass.emit(
        Copy{.dst = to_host ? host : device, .src = to_host ? device : host, .bytes = tensor.bytes},
        Stream::copy);
  }
}

void reduce_gradient(const Pass& pass) {
  const Memory& memory = pass.memory;
  const Tensor gradient = memory.flat(pass.unit, "grad");
  if (memory.config().mixed_precision != MixedPrecision::pure)
    return pass.emit(AllReduce{gradient}, Stream::reduce);
  const Tensor wire = memory.tensor("wire", 1, gradient.cols, memory.compute());
  pass.emit(Cast{.src = gradient, .dst = wire}, Stream::reduce);
  pass.emit(AllReduce{wire}, Stream::reduce);
  pass.emit(Cast{.src = wire, .dst = gradient}, Stream::reduce);
}

}  // namespace

void offload_block(const Pass& pass, std::int64_t layer) {
  move_block(pass, layer, true);
}

void fetch_block(const Pass& pass, std::int64_t layer) {
  move_block(pass, layer, false);
}

void reduce_unit(const Pass& pass) {
  const Memory& memory = pass.memory;
  if (memory::is_trained(memory.units()[static_cast<std::size_t>(pass.unit)]))
    reduce_gradient(pass);
  if (pass.unit != 0) return;
  auto* state = reinterpret_cast<StepState*>(memory.data("state"));
  pass.emit(AllReduce{{.data = &state->loss, .dtype = DType::f32, .rows = 1, .cols = 1, .ld = 1}},
            Stream::reduce);
}

}  // namespace tessera::trainer
