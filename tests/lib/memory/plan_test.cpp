#include "lib/memory/plan.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "lib/base/error.h"

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

constexpr Scratch kScratch{.partials = 5000,
                           .norm_partials = 800,
                           .workspace = 100000,
                           .step_inputs = 28,
                           .step_state = 16};

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
  for (const Checkpointing checkpointing :
       {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
    for (const Precision precision : {Precision::fp32, Precision::amp_bf16}) {
      Config wanted = config();
      wanted.checkpointing = checkpointing;
      wanted.precision = precision;
      const Plan made = plan(wanted, kScratch);
      CHECK(clash(made.buffers) == "");
      for (const Buffer& buffer : made.buffers) {
        CHECK(buffer.offset % kBufferAlignment == 0);
        CHECK(buffer.offset + buffer.bytes <=
              made.pool_bytes[static_cast<std::size_t>(buffer.pool)]);
        CHECK(buffer.first <= buffer.last);
        CHECK(buffer.last < static_cast<int>(made.actions.size()));
      }
    }
  }
}

TEST_CASE("disjoint lives share bytes") {
  const Plan made = plan(config(), kScratch);
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
  const Plan a = plan(config(), kScratch);
  const Plan b = plan(config(), kScratch);
  CHECK(std::ranges::equal(a.buffers, b.buffers, [](const Buffer& x, const Buffer& y) {
    return x.name == y.name && x.offset == y.offset && x.bytes == y.bytes;
  }));
}

TEST_CASE("full checkpointing keeps one activation a block, none keeps them all") {
  Config wanted = config();
  wanted.shape.n_layers = 40;
  const std::int64_t none = plan(wanted, kScratch).pool_bytes[0];
  wanted.checkpointing = Checkpointing::full;
  const std::int64_t full = plan(wanted, kScratch).pool_bytes[0];
  // Of 40 blocks, 39 no longer keep norms, q, k, v, attention, mid, both MLP activations.
  const std::int64_t activation = 3 * 50 * 64 * 4;
  CHECK(none - full > 39 * 14 * activation);
  CHECK(none - full < 40 * 17 * activation);
}

TEST_CASE("parameters take 16 bytes each in f32, 18 in bf16") {
  Config wanted = config();
  std::int64_t elements = 0;
  for (const Unit& unit : units(wanted.shape, wanted.seq_len)) elements += unit.trained.elements;
  const auto states = [&](const Plan& made) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : made.buffers) {
      if (buffer.name.starts_with("u")) bytes += buffer.bytes;
    }
    return bytes;
  };
  CHECK(states(plan(wanted, kScratch)) == 16 * elements);
  wanted.precision = Precision::amp_bf16;
  CHECK(states(plan(wanted, kScratch)) == 18 * elements);
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
  CHECK(plan(wanted, kScratch).buffer("logits").bytes == chunk * 50432 * 4);
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
  CHECK_THROWS_AS(plan(config(), kScratch).buffer("no such"), Error);
}
