// SPDX-License-Identifier: Apache-2.0
// The published MPT tables are the oracle: each of the 216 rows becomes a footer, and the tables
// must show its figures, names and order again.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <tuple>

#include "collect/collection.h"
#include "collect/writer_csv.h"
#include "collect/writer_markdown.h"
#include "collect/writer_mosaic.h"
#include "lib/base/numbers.h"
#include "tests/collect/csv_table.h"
#include "tests/collect/sample_run.h"
#include "tests/csv.h"
#include "tests/temporary.h"

using namespace tessera;

namespace {

using PublishedRow = std::map<std::string, std::string>;

std::int64_t integer(const std::string& text) {
  return parse_integer(text).value();
}

// "bf16" of the older tables is amp_bf16 by its old name.
std::string precision_of(const PublishedRow& row) {
  const std::string& precision = row.at("precision");
  return precision.starts_with("amp_") ? precision : "amp_" + precision;
}

std::string fake_id(std::size_t index) {
  return fmt::format("{:012x}", index);
}

// A log that holds nothing but its footer.
std::string footer_of(const PublishedRow& row, std::size_t index) {
  const model::Shape shape = model::find_model(row.at("model"), "").shape;
  runlog::Facts facts;
  facts.label = row.at("model");
  facts.d_model = shape.d_model;
  facts.n_layers = shape.n_layers;
  facts.n_heads = shape.n_heads;
  facts.n_kv_heads = shape.n_kv_heads;
  facts.head_dim = shape.head_dim;
  facts.ffn = shape.ffn;
  facts.vocab = shape.vocab;
  facts.norm = "layernorm";
  facts.positions = "learned";
  facts.activation = "gelu_erf";
  facts.biases = "qkv,out,mlp,norm";
  facts.tied = true;
  facts.n_params = integer(row.at("n_params"));
  facts.ran<&sweep::Point::gpus>() = integer(row.at("gpus"));
  facts.ran<&sweep::Point::seq_len>() = integer(row.at("seq_len"));
  facts.ran<&sweep::Point::global_batch>() = integer(row.at("global_batch_size"));
  facts.ran<&sweep::Point::microbatch_size>() = integer(row.at("micro_batch_size"));
  facts.accum = integer(row.at("grad_accum"));
  facts.ran<&sweep::Point::precision>() = precision_of(row);
  facts.ran<&sweep::Point::mixed_precision>() = row.at("mp_mode");
  facts.ran<&sweep::Point::sharding_strategy>() = row.at("sharding");
  facts.ran<&sweep::Point::activation_checkpointing>() =
      row.at("act_ckpt") == "True" ? "full" : "none";
  facts.ran<&sweep::Point::activation_cpu_offload>() = row.at("act_offload") == "True";
  facts.device_name = row.at("gpu") == "h100_80gb"   ? "NVIDIA H100 80GB HBM3"
                      : row.at("gpu") == "a100_80gb" ? "NVIDIA A100-SXM4-80GB"
                                                     : "NVIDIA A100-SXM4-40GB";
  facts.device_count = facts.ran<&sweep::Point::gpus>();
  runlog::Footer footer;
  footer.status = runlog::Status::ok;
  // Printed throughputs are rounded down: the middle of what they may have been.
  footer.steps = {.warmup = 10,
                  .measured = 20,
                  .measured_s = 1000,
                  .tokens = integer(row.at("tokens_per_s")) * 1000 + 500};
  test::LogText log({.project = "mpt",
                     .run = fmt::format("mpt--{}-s{}-{}g-{}", row.at("model"), row.at("seq_len"),
                                        row.at("gpus"), fake_id(index)),
                     .id = fake_id(index)});
  log.end(footer, facts);
  return log.text();
}

// Model size by its name, in millions.
double size_of(const std::string& model) {
  const double number = std::atof(model.c_str());
  return model.ends_with('b') ? 1000 * number : number;
}

}  // namespace

TEST_CASE("all 216 published rows come out as published") {
  test::Table published = test::read_csv("yamls/reference/mpt-published.csv");
  REQUIRE(published.size() == 216);
  const test::TemporaryFolder folder;
  for (std::size_t i = 0; i < published.size(); ++i) {
    published[i]["id"] = fake_id(i);
    const std::string log = footer_of(published[i], i);
    const auto run = folder / "mpt" / fmt::format("mpt--x-s1-1g-{}", fake_id(i));
    make_directories(run);
    write_file_atomically(run / "log.1.0.0.jsonl", log);
  }
  collect::Request request;
  request.projects = {{.workspace = folder.path(), .name = "mpt"}};
  request.catalogues.built_in = hardware::built_in_catalogue();
  const collect::Collection collection = collect::collect_rows(request);
  CHECK(collection.notes.lines().empty());
  REQUIRE(collection.rows.size() == 216);

  const auto key = [](const PublishedRow& row) {
    return std::tuple(row.at("gpu"), precision_of(row), size_of(row.at("model")),
                      integer(row.at("seq_len")), integer(row.at("gpus")),
                      integer(row.at("global_batch_size")), integer(row.at("micro_batch_size")));
  };
  std::ranges::stable_sort(published,
                           [&](const auto& a, const auto& b) { return key(a) > key(b); });

  // The CSV: names, settings and figures.
  const test::Table table = test::csv_table(collect::csv(collection.rows));
  double worst_mfu = 0;
  int tflop_off = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto& row = table[i];
    const auto& expected = published[i];
    CAPTURE(expected.at("model"));
    CAPTURE(expected.at("seq_len"));
    CAPTURE(expected.at("gpus"));
    CHECK(row.at("id") == expected.at("id"));
    CHECK(row.at("Model") == expected.at("model"));
    CHECK(row.at("GPU") == expected.at("gpu"));
    for (const auto& [ours, theirs] : {std::pair{"SeqLen (T)", "seq_len"},
                                       {"# GPUs", "gpus"},
                                       {"MicroBatchSize", "micro_batch_size"},
                                       {"GradAccum", "grad_accum"},
                                       {"GlobalBatchSize", "global_batch_size"},
                                       {"GlobalBatchSize (T)", "global_batch_tokens"},
                                       {"MP Mode", "mp_mode"},
                                       {"Sharding Strategy", "sharding"},
                                       {"Activation Checkpointing", "act_ckpt"},
                                       {"Activation CPUOffload", "act_offload"},
                                       {"NumParams", "n_params"}}) {
      CHECK(row.at(ours) == expected.at(theirs));
    }
    // What half a token per second more or less may change, and the published two places.
    const double tokens_per_s = integer(expected.at("tokens_per_s")) + 0.5;
    for (const auto& [ours, theirs] : {std::pair{"MFU", "mfu"}, {"HFU", "hfu"}}) {
      const double shown = std::atof(row.at(ours).c_str());
      const double difference = std::abs(shown - std::atof(expected.at(theirs).c_str()));
      CHECK(difference <= 0.005 + 0.5 * shown / tokens_per_s + 1e-9);
      worst_mfu = std::max(worst_mfu, difference);
    }
    CHECK(std::floor(std::atof(row.at("Throughput (T/s)").c_str())) ==
          std::atof(expected.at("tokens_per_s").c_str()));
    if (std::floor(std::atof(row.at("Model TFLOP").c_str())) !=
        std::atof(expected.at("model_tflop").c_str())) {
      ++tflop_off;
      // These two stand one above what their own throughput gives.
      CHECK(expected.at("gpu") == "a100_40gb");
      CHECK(expected.at("seq_len") == "8192");
      CHECK((expected.at("model") == "7b" || expected.at("model") == "3b"));
    }
  }
  CHECK(tflop_off == 2);
  MESSAGE("worst difference of MFU or HFU: ", worst_mfu, " percent points");

  // As the publishers print: the same text but for what half a token per second changes.
  const std::string mosaic = collect::mosaic_csv(collection.rows);
  CHECK(mosaic.starts_with("Model,SeqLen (T),# GPUs,GPU,MFU,HFU,Model TFLOP,"));
  std::string lf;
  for (const char c : mosaic) {
    if (c != '\r') lf += c;
  }
  CHECK(mosaic.size() - lf.size() == 217);
  const test::Table as_published = test::csv_table(lf);
  REQUIRE(as_published.size() == 216);
  int other_text = 0;
  for (std::size_t i = 0; i < as_published.size(); ++i) {
    for (const auto& [ours, theirs] : {std::pair{"Throughput (S/s)", "samples_per_s"},
                                       {"Throughput (T/s)", "tokens_per_s"},
                                       {"Throughput (T/s/GPU)", "tokens_per_s_per_gpu"}}) {
      CHECK(as_published[i].at(ours) == published[i].at(theirs));
    }
    for (const auto& [ours, theirs] :
         {std::pair{"MFU", "mfu"}, {"HFU", "hfu"}, {"Model TFLOP", "model_tflop"}}) {
      other_text += as_published[i].at(ours) == published[i].at(theirs) ? 0 : 1;
    }
  }
  MESSAGE(other_text, " of 648 figures differ in their last digit");
  CHECK(other_text <= 25);
  CHECK(collect::mosaic_markdown(collection.rows).starts_with("|  Model | SeqLen (T) |"));

  // The Markdown: headings and the cells that people read.
  std::istringstream lines(collect::markdown(collection.rows, "Results of mpt"));
  std::vector<std::string> headings;
  std::size_t at = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) headings.push_back(line.substr(3));
    if (!line.starts_with("| ") || line.starts_with("| ---") || line.starts_with("| Model"))
      continue;
    const auto cells = test::markdown_cells(line);
    REQUIRE(cells.size() == 20);
    REQUIRE(at < published.size());
    CHECK(cells[0] == published[at].at("model"));
    CHECK(std::abs(std::atof(cells[4].c_str()) - std::atof(published[at].at("mfu").c_str())) <
          0.06);
    CHECK(std::abs(std::atof(cells[6].c_str()) -
                   std::atof(published[at].at("model_tflop").c_str())) <= 1);
    ++at;
  }
  CHECK(at == 216);
  CHECK(headings == std::vector<std::string>{"h100_80gb, amp_fp8", "h100_80gb, amp_bf16",
                                             "a100_80gb, amp_bf16", "a100_40gb, amp_bf16",
                                             "How to read this"});
}
