// SPDX-License-Identifier: Apache-2.0
#include "lib/sweep/sweep_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/base/file.h"
#include "lib/model/data_folder.h"
#include "lib/point/data_path.h"
#include "lib/sweep/duration.h"

namespace tessera::sweep {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMostRepeats = 99;  // names reserve -rJJ

// Returns where the key of a member stands, or its value if that is not known.
const std::string& key_place(const Value& value) {
  return value.key_where.empty() ? value.where : value.key_where;
}

// Returns the members of a map. Error(input) for any other value.
const std::vector<Member>& members_of(const Value& value, std::string_view what) {
  const Fields checked(value, what);
  return value.members;
}

// Returns the items of a list. Error(input) for any other value.
std::vector<const Value*> listed(const Value& value, std::string_view what) {
  if (value.kind != Value::Kind::list) bad_value(value, fmt::format("{} must be a list", what));
  std::vector<const Value*> items;
  for (const Value& item : value.items) items.push_back(&item);
  return items;
}

// Remembers what is set in one scope, so that nothing is set twice.
class Scope {
 public:
  void claim(const std::string& key, const std::string& where) {
    if (std::ranges::find(seen_, key) != seen_.end()) {
      throw Error(ExitCode::input, where, fmt::format("'{}' is given twice", key),
                  key == "batch" ? "batch and global_batch are the same axis" : "keep one of them");
    }
    seen_.push_back(key);
  }

 private:
  std::vector<std::string> seen_;
};

// Reads the parts of one sweep file. Relative paths are resolved against the folder of the file.
class Reader {
 public:
  explicit Reader(const std::string& source) : folder_(fs::path(source).parent_path()) {}

  // Reads "seq_len: [2048, 4096]": one axis with two choices.
  Axis axis(const std::string& key, const Value& value, Scope& scope) const {
    Axis read;
    for (Setting& choice : parse_choices(key, value)) {
      if (read.keys.empty()) read.keys.push_back(choice.key);
      read.choices.push_back({located(std::move(choice))});
    }
    scope.claim(read.keys.front(), key_place(value));
    return read;
  }

  // Reads {gpus: [8, 16], microbatch_size: [4, 2]}: one axis with two choices of two settings.
  Axis zip_group(const Value& value, Scope& scope) const {
    Axis group;
    for (const auto& [key, member] : members_of(value, "a zip group")) {
      const std::vector<Setting> choices = parse_choices(key, member);
      if (group.keys.empty()) {
        group.choices.resize(choices.size());
      } else if (choices.size() != group.choices.size()) {
        bad_value(member,
                  fmt::format("'{}' has {} values where '{}' has {}", key, choices.size(),
                              group.keys.front(), group.choices.size()),
                  "the lists of a zip group are equally long");
      }
      group.keys.push_back(choices.front().key);
      scope.claim(group.keys.back(), key_place(member));
      for (std::size_t i = 0; i < choices.size(); ++i)
        group.choices[i].push_back(located(choices[i]));
    }
    if (group.keys.empty()) bad_value(value, "the zip group is empty");
    return group;
  }

  // Reads one group or a list of groups.
  void zip_groups(const Value& value, Block& block, Scope& scope) const {
    if (value.kind == Value::Kind::map) {
      block.axes.push_back(zip_group(value, scope));
      return;
    }
    for (const Value* group : listed(value, "zip")) block.axes.push_back(zip_group(*group, scope));
  }

  // Reads {steps: 20, precision: bf16}: one value for each key.
  Assignment assignment(const Value& value, std::string_view what) const {
    Assignment read;
    Scope scope;
    for (const auto& [key, member] : members_of(value, what)) {
      read.push_back(located(parse_setting(key, member)));
      scope.claim(read.back().key, key_place(member));
    }
    return read;
  }

  // Reads an include, which is a product of its own.
  Block include(const Value& value) const {
    Block block;
    block.where = value.where;
    Scope scope;
    const Value* batch = nullptr;
    const Value* zip = nullptr;
    for (const auto& [key, member] : members_of(value, "an include")) {
      if (key == "batch") {
        batch = &member;
      } else if (key == "zip") {
        zip = &member;
      } else {
        block.axes.push_back(axis(key, member, scope));
      }
    }
    // As in the grid, zip groups follow the other axes and the batch comes last.
    if (zip != nullptr) zip_groups(*zip, block, scope);
    if (batch != nullptr) block.axes.push_back(axis("batch", *batch, scope));
    if (block.axes.empty()) bad_value(value, "the include is empty");
    return block;
  }

  // Reads {model: 7b, gpus: 16} or {when: "gpus > 64", reason: too large}.
  Exclude exclude(const Value& value) const {
    Exclude read;
    read.where = value.where;
    for (const auto& [key, member] : members_of(value, "an exclude")) {
      if (key == "when") {
        read.when = Expression::parse(as_text(member), member.where);
      } else if (key == "reason") {
        read.reason = as_text(member);
      } else {
        std::vector<Setting> choices = parse_choices(key, member);
        for (Setting& choice : choices) choice = located(std::move(choice));
        read.partial.push_back(std::move(choices));
      }
    }
    if (read.when.has_value() != read.partial.empty()) {
      bad_value(value, "an exclude is either a partial point or an expression",
                "{model: 7b, gpus: 16} or {when: \"...\", reason: ...}");
    }
    return read;
  }

  // Reads {when: "seq_len > 8192", set: {microbatch_size: 1}}.
  Override override_rule(const Value& value) const {
    Fields fields(value, "an override");
    Override read;
    const Value& when = fields.required("when");
    read.when = Expression::parse(as_text(when), when.where);
    read.set = assignment(fields.required("set"), "set");
    read.where = value.where;
    fields.finish();
    return read;
  }

 private:
  // Files are meant relative to the sweep that names them. A model file may be elsewhere; a token
  // file's path is part of the point, so it must not depend on what is there.
  Setting located(Setting setting) const {
    if (setting.key == "data")
      setting.value = located_data(std::get<std::string>(setting.value), folder_);
    if (setting.key != "model") return setting;
    const auto& name = std::get<std::string>(setting.value);
    if (name.find('/') == std::string::npos || fs::path(name).is_absolute()) return setting;
    std::error_code ignored;
    const fs::path beside = folder_ / name;
    if (fs::is_regular_file(beside, ignored)) setting.value = beside.string();
    return setting;
  }

  fs::path folder_;
};

// Returns the seconds of "2h" or "04:00:00". Error(input) if the text is no duration.
std::int64_t duration(const Value& value) {
  const auto seconds = parse_duration(as_text(value));
  if (!seconds) bad_value(value, fmt::format("'{}' is no duration", value.text), kDurationFix);
  return *seconds;
}

// Reads {time: 30m, max_in_flight: 4, max_gpu_hours: 100}. `time: auto` is the same as no time.
Limits parse_limits(const Value& value) {
  Fields fields(value, "limits");
  Limits limits;
  if (const Value* time = fields.optional("time"); time != nullptr && as_text(*time) != "auto")
    limits.time_s = duration(*time);
  if (const Value* most = fields.optional("max_in_flight"))
    limits.max_in_flight = as_integer(*most, 1, 1000000);
  if (const Value* hours = fields.optional("max_gpu_hours")) {
    limits.max_gpu_hours = as_number(*hours);
    if (*limits.max_gpu_hours <= 0) bad_value(*hours, "max_gpu_hours is not positive");
  }
  if (const Value* pack = fields.optional("pack")) limits.pack_s = duration(*pack);
  if (const Value* axis = fields.optional("stop_axis_after_oom")) {
    limits.stop_axis_after_oom = as_text(*axis);
    // More of these needs more memory, all else equal; of others that is not certain.
    const std::vector<std::string> axes{"microbatch_size", "seq_len"};
    if (std::ranges::find(axes, axis->text) == axes.end())
      bad_value(*axis, fmt::format("'{}' cannot be stopped at", axis->text),
                suggestion(axis->text, axes));
  }
  fields.finish();
  return limits;
}

// Reads matrix, zip and batch, whose product is the grid. A batch alone makes no points.
void parse_block(Fields& fields, const Reader& reader, Grid& grid) {
  const Value* matrix = fields.optional("matrix");
  const Value* zip = fields.optional("zip");
  const Value* batch = fields.optional("batch");
  Block block;
  Scope scope;
  if (matrix != nullptr) {
    block.where = matrix->where;
    for (const auto& [key, member] : members_of(*matrix, "the matrix"))
      block.axes.push_back(reader.axis(key, member, scope));
  }
  if (zip != nullptr) reader.zip_groups(*zip, block, scope);
  const bool has_points = !block.axes.empty();
  if (batch != nullptr) block.axes.push_back(reader.axis("batch", *batch, scope));
  if (has_points) grid.matrix = std::move(block);
}

}  // namespace

Grid parse_sweep(const Value& value, const std::string& source) {
  Fields fields(value, "a sweep");
  const Value& schema = fields.required("tessera_sweep");
  require_schema(schema, 1);
  const Reader reader(source);
  Grid grid;
  if (const Value* project = fields.optional("project")) {
    grid.project = as_text(*project);
    grid.project_where = project->where;
  }
  if (const Value* defaults = fields.optional("defaults"))
    grid.defaults = reader.assignment(*defaults, "defaults");
  parse_block(fields, reader, grid);
  if (const Value* overrides = fields.optional("overrides")) {
    for (const Value* rule : listed(*overrides, "overrides"))
      grid.overrides.push_back(reader.override_rule(*rule));
  }
  if (const Value* excludes = fields.optional("exclude")) {
    for (const Value* rule : listed(*excludes, "exclude"))
      grid.excludes.push_back(reader.exclude(*rule));
  }
  if (const Value* includes = fields.optional("include")) {
    for (const Value* block : listed(*includes, "include"))
      grid.includes.push_back(reader.include(*block));
  }
  if (const Value* repeats = fields.optional("repeats"))
    grid.repeats = static_cast<int>(as_integer(*repeats, 1, kMostRepeats));
  if (const Value* limits = fields.optional("limits")) grid.limits = parse_limits(*limits);
  fields.finish();
  return grid;
}

Grid read_sweep(const std::string& path) {
  return parse_sweep(read_yaml(path), path);
}

std::string find_sweep(const std::string& name, const std::string& where) {
  std::error_code ignored;
  if (is_file(name)) return name;
  if (name.find('/') != std::string::npos) throw_no_file(name, "sweep", where);
  std::vector<std::string> known;
  for (const auto& entry : fs::directory_iterator(data_folder() / "sweeps", ignored))
    known.push_back(entry.path().stem().string());
  const std::string stem = name.ends_with(".yaml") ? name.substr(0, name.size() - 5) : name;
  if (std::ranges::find(known, stem) != known.end())
    return (data_folder() / "sweeps" / (stem + ".yaml")).string();
  std::ranges::sort(known);
  throw Error(ExitCode::input, where, fmt::format("no sweep file '{}'", name),
              suggestion(stem, known));
}

}  // namespace tessera::sweep
