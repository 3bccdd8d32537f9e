// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/gloo/gloo.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "lib/base/error.h"
#include "trainer/comm/call.h"
#include "trainer/comm/gloo/module.h"
#include "trainer/comm/gloo/party.h"
#include "trainer/comm/sum.h"

namespace tessera::trainer {
namespace {

using comm::Call;
using comm::Collective;
using comm::GlooModule;
using comm::GlooParty;

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

class GlooRank final : public Communicator {
 public:
  GlooRank(const GlooModule& module, int rank, int size, Store& store, GlooOptions options)
      : rank_(rank), size_(size), party_(module, rank, size, store, std::move(options)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void prepare(std::span<const std::span<std::byte>> registered) override {
    const Call mine{.collective = Collective::prepare, .registered = registered};
    party_.begin(mine);
    allocate();
    party_.meet(mine);
    party_.enter(mine);
  }

  void all_gather(Stream /*stream*/, Tensor shard, Tensor full) override {
    const Call mine = comm::all_gather_call(rank_, size_, shard, full);
    party_.need_prepared(mine.collective);
    party_.enter(mine);
    const std::int64_t bytes = mine.bytes();
    party_.for_peers([&](int peer) {
      party_.receive(mine, comm::kGatherLane, peer, mine.out + bytes * peer, bytes);
    });
    party_.for_peers([&](int peer) { party_.send(mine, comm::kGatherLane, peer, mine.in, bytes); });
    std::byte* const own = mine.out + bytes * rank_;
    if (own != mine.in) std::memcpy(own, mine.in, static_cast<std::size_t>(bytes));
    party_.for_peers([&](int peer) { party_.wait_received(mine, comm::kGatherLane, peer); });
    party_.for_peers([&](int peer) { party_.wait_sent(mine, comm::kGatherLane, peer); });
  }

  void reduce_scatter_sum(Stream /*stream*/, Tensor full, Tensor shard) override {
    const Call mine = comm::reduce_scatter_sum_call(rank_, size_, full, shard);
    party_.need_prepared(mine.collective);
    party_.enter(mine);
    const std::int64_t piece = piece_elements(mine);
    const auto part = [&](std::int64_t round, int rank) {
      const std::int64_t first = round * piece;
      return Part{mine.elements * rank + first, std::min(piece, mine.elements - first)};
    };
    // A shard may be its own slice of full: sums overwrite only that slice, which is sent to
    // nobody.
    sum_in_rounds(
        mine, (mine.elements + piece - 1) / piece, part, const_cast<std::byte*>(mine.in),
        [&](std::int64_t round) { return mine.out + round * piece * bytes_of(mine.dtype); }, false);
  }

  void all_reduce_sum(Stream /*stream*/, Tensor tensor) override {
    const Call mine = comm::all_reduce_sum_call(tensor);
    party_.need_prepared(mine.collective);
    if (mine.bytes() <= comm::kSmallBytes) return all_reduce_small(mine);
    party_.enter(mine);
    // A round covers a range of the tensor, split among the ranks in whole cache lines (but the
    // last). Each rank sums its part.
    const std::int64_t piece = piece_elements(mine);
    const std::int64_t line = 64 / bytes_of(mine.dtype);
    const std::int64_t whole = piece * size_;
    const auto part = [&](std::int64_t round, int rank) {
      const std::int64_t begin = round * whole;
      const std::int64_t count = std::min(whole, mine.elements - begin);
      const std::int64_t lines = (count + line - 1) / line;
      const std::int64_t most = (lines + size_ - 1) / size_ * line;
      const std::int64_t first = std::min(most * rank, count);
      return Part{begin + first, std::min(most, count - first)};
    };
    sum_in_rounds(
        mine, (mine.elements + whole - 1) / whole, part, mine.out,
        [&](std::int64_t round) {
          return mine.out + part(round, rank_).first * bytes_of(mine.dtype);
        },
        true);
  }

  std::optional<std::string> poll() override { return party_.poll(); }
  void abort() override { party_.abort(); }

 private:
  // A range of a tensor's elements.
  struct Part {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };

  void allocate() {
    sources_.resize(index(size_));
    // Scratch holds two rounds of a piece from each peer, so that one is received while one is
    // summed.
    constexpr std::int64_t kMostPiece = std::int64_t{1} << 20;
    constexpr std::int64_t kPage = 4096;
    piece_bytes_ = std::min(kMostPiece, comm::kScratchBytes / (2 * (size_ - 1)) / kPage * kPage);
    scratch_ = std::vector<std::byte>(static_cast<std::size_t>(2 * (size_ - 1) * piece_bytes_));
  }
  std::int64_t piece_elements(const Call& call) const {
    return piece_bytes_ / bytes_of(call.dtype);
  }
  std::byte* scratch(std::int64_t round, int peer) {
    const int place = (peer - rank_ + size_) % size_ - 1;
    return scratch_.data() + (round % 2 * (size_ - 1) + place) * piece_bytes_;
  }

  void all_reduce_small(const Call& mine) {
    const auto bytes = static_cast<std::size_t>(mine.bytes());
    std::memcpy(party_.own_data(), mine.in, bytes);
    party_.enter(mine);
    for (int rank = 0; rank < size_; ++rank)
      sources_[index(rank)] = rank == rank_ ? party_.own_data() : party_.data_of(rank);
    comm::sum_in_order(mine.dtype, sources_, mine.elements, std::span(&mine.out, 1));
  }

  // Reduces in rounds. part(round, rank): the range of `data` that the rank sums; the sum goes to
  // result(round). The next round is in flight while one is summed. spread: sends the sums to all
  // ranks, to the place of what was summed.
  template <class PartOf, class Result>
  void sum_in_rounds(const Call& mine, std::int64_t rounds, PartOf part, std::byte* data,
                     Result result, bool spread) {
    const std::int64_t size = bytes_of(mine.dtype);
    const auto begin = [&](std::int64_t round) {
      const std::int64_t own = part(round, rank_).count * size;
      party_.for_peers([&](int peer) {
        const Part theirs = part(round, peer);
        if (own > 0) party_.receive(mine, comm::kScatterLane, peer, scratch(round, peer), own);
        // The peer sends its sum only after it has received, and summed, what this rank sends from
        // there.
        if (spread && theirs.count > 0)
          party_.receive(mine, comm::kGatherLane, peer, data + theirs.first * size,
                         theirs.count * size);
      });
      party_.for_peers([&](int peer) {
        const Part theirs = part(round, peer);
        if (theirs.count > 0)
          party_.send(mine, comm::kScatterLane, peer, data + theirs.first * size,
                      theirs.count * size);
      });
    };
    begin(0);
    for (std::int64_t round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) begin(round + 1);
      const Part own = part(round, rank_);
      if (own.count == 0) continue;
      party_.for_peers([&](int peer) {
        party_.wait_received(mine, comm::kScatterLane, peer);
        sources_[index(peer)] = scratch(round, peer);
      });
      sources_[index(rank_)] = data + own.first * size;
      std::byte* const out = result(round);
      comm::sum_in_order(mine.dtype, sources_, own.count, std::span(&out, 1));
      if (spread)
        party_.for_peers(
            [&](int peer) { party_.send(mine, comm::kGatherLane, peer, out, own.count * size); });
    }
    for (std::int64_t round = 0; round < rounds; ++round) {
      const bool own = part(round, rank_).count > 0;
      party_.for_peers([&](int peer) {
        const bool theirs = part(round, peer).count > 0;
        if (theirs) party_.wait_sent(mine, comm::kScatterLane, peer);
        if (spread && theirs) party_.wait_received(mine, comm::kGatherLane, peer);
        if (spread && own) party_.wait_sent(mine, comm::kGatherLane, peer);
      });
    }
  }

  const int rank_;
  const int size_;
  std::vector<const std::byte*> sources_;  // one for each rank
  std::int64_t piece_bytes_ = 0;
  std::vector<std::byte> scratch_;
  GlooParty party_;  // its destructor ends the connections before that memory is freed
};

}  // namespace

std::filesystem::path gloo_module_path() {
  std::error_code fault;
  return std::filesystem::read_symlink("/proc/self/exe", fault).parent_path() / "tessera-gloo.so";
}

const comm::GlooModule& open_gloo(const std::filesystem::path& module) {
  const auto refuse = [&](std::string_view what) {
    throw Error(ExitCode::unsupported, module.string(), what,
                "several ranks need it: build with the Debian package libgloo-dev, and have "
                "libgloo0 on each node");
  };
  void* const library = ::dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* text = ::dlerror();
    std::string what = text != nullptr ? text : "cannot be opened";
    // The loader's text begins with the path if the file itself is at fault.
    if (const std::string path = module.string() + ": "; what.starts_with(path))
      what.erase(0, path.size());
    refuse(what);
  }
  const auto module_function =
      reinterpret_cast<comm::GlooModuleFunction*>(::dlsym(library, comm::kGlooModuleSymbol));
  if (module_function == nullptr) refuse("is no module of the trainer");
  const comm::GlooModule* const opened = module_function();
  if (opened->version != comm::kGlooModuleVersion)
    refuse(fmt::format("is of version {}, not {}", opened->version, comm::kGlooModuleVersion));
  return *opened;
}

std::unique_ptr<Communicator> gloo_communicator(const comm::GlooModule& module, int rank, int size,
                                                Store& store, GlooOptions options) {
  if (size < 2 || size > comm::kMostGlooRanks || rank < 0 || rank >= size) {
    throw Error(ExitCode::internal, "gloo_communicator", fmt::format("rank {} of {}", rank, size));
  }
  return std::make_unique<GlooRank>(module, rank, size, store, std::move(options));
}

}  // namespace tessera::trainer
