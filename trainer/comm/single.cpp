// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "lib/base/error.h"
#include "trainer/comm/call.h"
#include "trainer/comm/communicator.h"

namespace tessera::trainer {
namespace {

class Single final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void prepare(std::span<const std::span<std::byte>> /*registered*/) override {
    if (prepared_) throw Error(ExitCode::internal, "prepare", "was called before");
    need_alive("prepare");
    prepared_ = true;
  }
  void all_gather(Stream /*stream*/, Tensor shard, Tensor full) override {
    run(comm::all_gather_call(0, 1, shard, full));
  }
  void reduce_scatter_sum(Stream /*stream*/, Tensor full, Tensor shard) override {
    run(comm::reduce_scatter_sum_call(0, 1, full, shard));
  }
  void all_reduce_sum(Stream /*stream*/, Tensor tensor) override {
    run(comm::all_reduce_sum_call(tensor));
  }
  std::optional<std::string> poll() override {
    return aborted_ ? std::optional<std::string>(kAborted) : std::nullopt;
  }
  void abort() override { aborted_ = true; }

 private:
  static constexpr const char* kAborted = "rank 0 has aborted";

  void need_alive(const char* where) const {
    if (aborted_) throw Error(ExitCode::comm_error, where, kAborted);
  }
  void run(const comm::Call& call) const {
    const char* name = comm::name_of(call.collective);
    if (!prepared_) throw Error(ExitCode::internal, name, "comes before prepare");
    need_alive(name);
    if (call.in != call.out) std::memcpy(call.out, call.in, static_cast<std::size_t>(call.bytes()));
  }

  bool prepared_ = false;
  bool aborted_ = false;
};

}  // namespace

std::unique_ptr<Communicator> single_communicator() {
  return std::make_unique<Single>();
}

}  // namespace tessera::trainer
