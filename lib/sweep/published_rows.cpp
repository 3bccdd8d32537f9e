// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/published_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/base/csv.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/model/data_folder.h"

namespace tessera::sweep {

namespace {

// One row's cells by the name of their column.
class Cells {
 public:
  Cells(const CsvTable& table, const CsvRow& row) : table_(table), row_(row) {}

  const std::string& text(std::string_view column) const {
    return row_.cells[table_.column(column)];
  }

  [[noreturn]] void fail(std::string_view column, std::string_view fix) const {
    throw Error(ExitCode::input, fmt::format("{}:{}", table_.name, row_.line),
                fmt::format("{} '{}'", column, text(column)), fix);
  }

  std::int64_t count(std::string_view column) const {
    const auto value = parse_integer(text(column));
    if (!value || *value < 1) fail(column, "must be a positive integer");
    return *value;
  }

  double percent(std::string_view column) const {
    const auto value = parse_number(text(column));
    if (!value || *value <= 0 || *value > 100) fail(column, "must be above 0 and at most 100");
    return *value / 100;
  }

  bool boolean(std::string_view column) const {
    if (text(column) == "True") return true;
    if (text(column) != "False") fail(column, "must be True or False");
    return false;
  }

  Precision precision(std::string_view column) const {
    // Rows that say bf16 are of the time when that was the name of amp_bf16.
    if (text(column) == "bf16") return Precision::amp_bf16;
    const auto value = from_text<Precision>(text(column));
    if (!value) fail(column, suggestion(text(column), all_names<Precision>()));
    return *value;
  }

 private:
  const CsvTable& table_;
  const CsvRow& row_;
};

// |log2(a / b)|
double doublings(double a, double b) {
  return std::abs(std::log2(a / b));
}

// As model::parameter_count, which could overflow where a long sequence has learned positions.
double parameters(const model::Shape& shape, std::int64_t seq_len) {
  const double one = real(model::parameter_count(shape, 1));
  if (shape.positions != model::Positions::learned) return one;
  return one + (real(seq_len) - 1) * real(shape.d_model);
}

}  // namespace

std::vector<PublishedRow> parse_published_rows(std::string_view csv, const std::string& name) {
  const CsvTable table = parse_csv(csv, name);
  std::vector<PublishedRow> rows;
  rows.reserve(table.rows.size());
  for (const CsvRow& row : table.rows) {
    const Cells cells(table, row);
    rows.push_back({.model = cells.text("model"),
                    .n_params = cells.count("n_params"),
                    .seq_len = cells.count("seq_len"),
                    .gpus = cells.count("gpus"),
                    .gpu = cells.text("gpu"),
                    .precision = cells.precision("precision"),
                    .full_checkpointing = cells.boolean("act_ckpt"),
                    .global_batch = cells.count("global_batch_size"),
                    .mfu = cells.percent("mfu")});
  }
  return rows;
}

const std::vector<PublishedRow>& published_rows() {
  static const std::vector<PublishedRow> rows = [] {
    const auto path = data_folder() / "reference" / "mpt-published.csv";
    return parse_published_rows(read_file(path), path.string());
  }();
  return rows;
}

std::optional<double> distance(const Point& point, const PublishedRow& row) {
  if (point.gpu != row.gpu || point.precision != row.precision) return std::nullopt;
  const auto tokens = [](std::int64_t batch, std::int64_t seq_len, std::int64_t devices) {
    return real(batch) * real(seq_len) / real(devices);
  };
  const bool full = point.activation_checkpointing == Checkpointing::full;
  return doublings(parameters(point.model, point.seq_len), real(row.n_params)) +
         doublings(real(point.seq_len), real(row.seq_len)) / 2 +
         doublings(real(point.gpus), real(row.gpus)) / 4 +
         (full == row.full_checkpointing ? 0.0 : 1.0) +
         doublings(tokens(point.global_batch, point.seq_len, point.gpus),
                   tokens(row.global_batch, row.seq_len, row.gpus)) /
             20;
}

const PublishedRow* nearest_row(const Point& point, std::span<const PublishedRow> rows) {
  const PublishedRow* nearest = nullptr;
  double least = kFarthest;
  for (const PublishedRow& row : rows) {
    const auto away = distance(point, row);
    if (!away || *away > least || (nearest != nullptr && *away == least)) continue;
    nearest = &row;
    least = *away;
  }
  return nearest;
}

}  // namespace tessera::sweep
