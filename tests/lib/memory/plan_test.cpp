// SPDX-License-Identifier: Apache-2.0
#include "lib/memory/plan.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "lib/base/error.h"
#include "lib/schedule/units.h"

using namespace tessera;
using namespace tessera::memory;

namespace {

Config config() {
  return {.shape = {.d_model = 64,
                    .n_layers = 4,
                    .n_heads = 4,
                    .n_kv_heads = 4,
                    .head_dim = 16,
                    .ffn = 256,
                    .vocab = 1000},
          .seq_len = 50,
          .device_batch = 7,
          .microbatch = 3};
}

bool overlap(const Buffer& a, const Buffer& b) {
  const bool together = a.first <= b.last && b.first <= a.last;
  return a.pool == b.pool && together && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

// The name of two buffers that share bytes while both live, or nothing.
std::string clash(const std::vector<Buffer>& buffers) {
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(buffers[i], buffers[j])) return buffers[i].name + " and " + buffers[j].name;
    }
  }
  return "";
}

}  // namespace

TEST_CASE("no two live buffers overlap, all are aligned and in their pool") {
  std::vector<Config> wanted;
  for (const Checkpointing checkpointing :
       {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
    for (const auto& [precision, mixed] : {std::pair{Precision::fp32, MixedPrecision::default_},
                                           {Precision::amp_bf16, MixedPrecision::default_},
                                           {Precision::amp_bf16, MixedPrecision::pure},
                                           {Precision::amp_bf16, MixedPrecision::full}}) {
      for (const auto& [sharding, world] : {std::pair{Sharding::no_shard, 1},
                                            {Sharding::no_shard, 4},
                                            {Sharding::full_shard, 4},
                                            {Sharding::shard_grad_op, 4},
                                            {Sharding::hybrid_shard, 4}}) {
        for (const bool offload : {false, true}) {
          for (const bool is_gpu : {false, true}) {
            Config each = config();
            each.checkpointing = checkpointing;
            each.precision = precision;
            each.mixed_precision = mixed;
            each.sharding = sharding;
            each.world = world;
            each.hybrid_group = sharding == Sharding::hybrid_shard ? 2 : 0;
            each.offload = offload;
            each.target.is_gpu = is_gpu;
            wanted.push_back(each);
          }
        }
      }
    }
  }
  Config mixed = config();
  mixed.mask = {Keep::input, Keep::all, Keep::selective, Keep::input};
  wanted.push_back(mixed);
  mixed.offload = true;
  wanted.push_back(mixed);
  for (const Config& each : wanted) {
    const Plan made = plan(each);
    CHECK(clash(made.buffers) == "");
    for (const Buffer& buffer : made.buffers) {
      CHECK(buffer.offset % kBufferAlignment == 0);
      CHECK(buffer.bytes > 0);
      CHECK(buffer.offset + buffer.bytes <= made.pool_bytes[static_cast<std::size_t>(buffer.pool)]);
      CHECK(buffer.first <= buffer.last);
      CHECK(buffer.first >= 0);
      CHECK(buffer.last < static_cast<int>(made.actions.size()));
    }
  }
}

TEST_CASE("disjoint lives share bytes") {
  const Plan made = plan(config());
  std::int64_t sum = 0;
  for (const Buffer& buffer : made.buffers) {
    if (buffer.pool == Pool::device) sum += buffer.bytes;
  }
  CHECK(made.pool_bytes[0] < sum);

  std::vector<Buffer> buffers{{.name = "a", .bytes = 1000, .first = 0, .last = 1},
                              {.name = "b", .bytes = 900, .first = 2, .last = 3},
                              {.name = "c", .bytes = 300, .first = 1, .last = 2}};
  CHECK(place(buffers, 5)[0] == 1024 + 512);
  CHECK(buffers[0].offset == 0);
  CHECK(buffers[1].offset == 0);
  CHECK(buffers[2].offset == 1024);
  // The check of overlaps sees one.
  buffers[2].offset = 768;
  CHECK(clash(buffers) == "c and a");
}

TEST_CASE("the same question gets the same plan") {
  const Plan a = plan(config());
  const Plan b = plan(config());
  CHECK(std::ranges::equal(a.buffers, b.buffers, [](const Buffer& x, const Buffer& y) {
    return x.name == y.name && x.offset == y.offset && x.bytes == y.bytes;
  }));
}

TEST_CASE("full checkpointing keeps one activation a block, none keeps them all") {
  Config wanted = config();
  wanted.shape.n_layers = 40;
  const std::int64_t none = plan(wanted).pool_bytes[0];
  wanted.checkpointing = Checkpointing::full;
  const std::int64_t full = plan(wanted).pool_bytes[0];
  // 39 of 40 blocks no longer keep norms, q, k, v, attention, mid, both MLP activations.
  const std::int64_t activation = 3 * 50 * 64 * 4;
  CHECK(none - full > 39 * 14 * activation);
  CHECK(none - full < 40 * 17 * activation);
}

namespace {

std::int64_t bytes_for(const Plan& made, std::initializer_list<Use> uses, Pool pool) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : made.buffers) {
    if (buffer.pool == pool && std::ranges::find(uses, buffer.use) != uses.end())
      bytes += buffer.bytes;
  }
  return bytes;
}

std::int64_t state_bytes(const Plan& made) {
  return bytes_for(made, {Use::weights, Use::gradients, Use::moments}, Pool::device);
}

}  // namespace

TEST_CASE("parameters take 16 bytes each in f32, 18 in bf16, 16 a rank's part when sharded") {
  Config wanted = config();
  std::int64_t elements = 0;
  for (const Unit& unit : units(wanted)) elements += unit.trained.elements;
  CHECK(state_bytes(plan(wanted)) == 16 * elements);
  wanted.precision = Precision::amp_bf16;
  CHECK(state_bytes(plan(wanted)) == 18 * elements);
  wanted.world = 4;
  CHECK(state_bytes(plan(wanted)) == 18 * elements);  // NO_SHARD: all of it on every rank
  wanted.sharding = Sharding::full_shard;
  std::int64_t part = 0;
  for (const Unit& unit : units(wanted)) part += shard_elements(unit.trained.elements, 4);
  CHECK(part >= elements / 4);
  CHECK(part < elements / 4 + 5 * kParameterAlignment);
  CHECK(state_bytes(plan(wanted)) == 16 * part);
  wanted.sharding = Sharding::hybrid_shard;
  wanted.hybrid_group = 2;
  CHECK(state_bytes(plan(wanted)) > 30 * part);
}

TEST_CASE("sharded blocks take two slots in turn, a slot each under SHARD_GRAD_OP") {
  Config wanted = config();
  wanted.shape.n_layers = 6;
  wanted.precision = Precision::amp_bf16;
  wanted.world = 4;
  wanted.sharding = Sharding::full_shard;
  const std::vector<Unit> all = units(wanted);
  const std::int64_t root = 4 * shard_elements(all[0].trained.elements, 4);
  const std::int64_t block = 4 * shard_elements(all[1].trained.elements, 4);
  const auto gathered = [&] {
    const Plan made = plan(wanted);
    return bytes_for(made, {Use::gathered}, Pool::communication) +
           bytes_for(made, {Use::gathered}, Pool::device);
  };
  CHECK(gathered() == (2 + 4) * (root + 2 * block));
  wanted.sharding = Sharding::shard_grad_op;
  CHECK(gathered() == 2 * (root + 6 * block) + 4 * (root + 2 * block));
  wanted.sharding = Sharding::full_shard;
  wanted.mixed_precision = MixedPrecision::full;
  CHECK(gathered() == (4 + 2 + 4) * (root + 2 * block));
  wanted.mixed_precision = MixedPrecision::pure;
  CHECK(gathered() == (2 + 4) * (root + 2 * block) + 2 * std::max(root, block));
  wanted.sharding = Sharding::no_shard;
  CHECK(gathered() == 2 * std::max(all[0].trained.elements, all[1].trained.elements));
}

TEST_CASE("offload leaves two blocks' kept activations on the device") {
  Config wanted = config();
  wanted.shape.n_layers = 9;
  const Plan on_device = plan(wanted);
  wanted.offload = true;
  const Plan offloaded = plan(wanted);
  const std::int64_t block = bytes_for(on_device, {Use::kept}, Pool::device) / 9;
  CHECK(bytes_for(offloaded, {Use::kept}, Pool::device) == 2 * block);
  CHECK(bytes_for(offloaded, {Use::kept}, Pool::pinned) == 7 * block);
  CHECK(offloaded.device_bytes() < on_device.device_bytes());
}

TEST_CASE("frozen parameters have neither masters nor gradients nor moments") {
  Config wanted = config();
  wanted.precision = Precision::amp_bf16;
  const std::int64_t before = state_bytes(plan(wanted));
  wanted.frozen = {"block.*.up.weight"};
  // 18 bytes each become 2.
  CHECK(before - state_bytes(plan(wanted)) == 16 * 4 * 64 * 256);
  wanted.frozen = {"*"};
  CHECK(trained_count(wanted) == 0);
}

TEST_CASE("logits exist by chunks of rows") {
  Config wanted = config();
  CHECK(head_chunk_rows(wanted) == 256);  // all 150 rows at once
  wanted.shape.vocab = 50368;
  wanted.seq_len = 512;
  wanted.microbatch = 4;
  const std::int64_t chunk = head_chunk_rows(wanted);
  CHECK(chunk % 128 == 0);
  CHECK(chunk == 512);
  CHECK(plan(wanted).buffer("logits").bytes == chunk * 50432 * 4);
  wanted.shape.vocab = std::int64_t{1} << 20;
  CHECK(head_chunk_rows(wanted) == 128);
}

TEST_CASE("microbatches and their layout") {
  CHECK(microbatches(48, 11) == std::vector<std::int64_t>{11, 11, 11, 11, 4});
  CHECK(microbatches(6, 6) == std::vector<std::int64_t>{6});
  CHECK(microbatches(6, 2) == std::vector<std::int64_t>{2, 2, 2});
  const BatchLayout layout = batch_layout(config(), 2);
  CHECK(layout.rows == 100);
  CHECK(layout.tokens == 0);
  CHECK(layout.targets == 128);
  CHECK(layout.order == 256);
  CHECK(layout.starts == 384);
  CHECK(layout.elements == 384 + 1088);  // 1024 padded rows + 1
  CHECK_THROWS_AS(plan(config()).buffer("no such"), Error);
}
