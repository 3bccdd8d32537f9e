// SPDX-License-Identifier: Apache-2.0
#include "lib/hardware/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "lib/base/numbers.h"
#include "lib/hardware/driver_name.h"
#include "lib/model/data_folder.h"

namespace tessera::hardware {

namespace {

std::vector<std::string> parse_patterns(const Value& value) {
  std::vector<std::string> patterns;
  for (const Value* item : as_list(value)) {
    patterns.push_back(as_text(*item));
    try {
      static_cast<void>(std::regex(patterns.back()));
    } catch (const std::regex_error&) {
      bad_value(*item, fmt::format("'{}' is not a regular expression", patterns.back()));
    }
  }
  return patterns;
}

double positive(const Value& value) {
  const double number = as_number(value);
  if (number <= 0) bad_value(value, fmt::format("{} is not positive", value.text));
  return number;
}

// "9.0" is 90.
int parse_compute_capability(const Value& value) {
  const std::string text = as_text(value);
  const std::size_t point = text.find('.');
  constexpr std::int64_t kMostMajor = 99;
  const auto major = parse_integer(text.substr(0, point));
  const bool has_minor = point != std::string::npos && text.size() == point + 2 &&
                         text.back() >= '0' && text.back() <= '9';
  if (!has_minor || !major || *major < 1 || *major > kMostMajor)
    bad_value(value, fmt::format("'{}' is no compute capability", text), "write it like 9.0");
  return static_cast<int>(10 * *major) + (text.back() - '0');
}

Gpu parse_gpu(const std::string& name, const Value& value) {
  Gpu gpu;
  gpu.name = name;
  Fields fields(value, "a GPU");
  gpu.match = parse_patterns(fields.required("match"));
  if (const Value* patterns = fields.optional("not")) gpu.not_match = parse_patterns(*patterns);
  gpu.memory_gib = positive(fields.required("memory_gib"));
  if (const Value* reserve = fields.optional("reserve_gib")) gpu.reserve_gib = positive(*reserve);
  if (const Value* capability = fields.optional("compute_capability"))
    gpu.compute_capability = parse_compute_capability(*capability);
  gpu.source = as_text(fields.required("source"));
  Fields peaks(fields.required("peak_tflops"), "peak_tflops");
  for (const std::string_view precision : all_names<Precision>()) {
    const Value* peak = peaks.nullable(precision);
    if (peak == nullptr) continue;
    gpu.peak_tflops[std::string(precision)] =
        peak->is_null() ? std::nullopt : std::optional(positive(*peak));
  }
  peaks.finish();
  fields.finish();
  if (gpu.reserve_gib >= gpu.memory_gib) {
    bad_value(value,
              fmt::format("reserve_gib ({}{}) is not less than memory_gib", gpu.reserve_gib,
                          value.find("reserve_gib") == nullptr ? ", as it is left out" : ""));
  }
  return gpu;
}

}  // namespace

Catalogue parse_catalogue(const Value& value) {
  const Fields checked(value, "a GPU catalogue");
  const Value* schema = value.find("tessera_gpus");
  if (schema == nullptr) bad_value(value, "a GPU catalogue lacks 'tessera_gpus'");
  require_schema(*schema, 1);
  Catalogue catalogue;
  for (const auto& [name, member] : value.members) {
    if (name == "tessera_gpus") continue;
    if (name == "cpu") bad_value(member, "'cpu' is no GPU", "its peak is measured");
    catalogue.gpus.push_back(parse_gpu(name, member));
  }
  return catalogue;
}

Catalogue built_in_catalogue() {
  return parse_catalogue(read_yaml((data_folder() / "gpus.yaml").string()));
}

void add(Catalogue& catalogue, const Catalogue& more) {
  for (const Gpu& gpu : more.gpus) {
    const auto known = std::ranges::find(catalogue.gpus, gpu.name, &Gpu::name);
    if (known != catalogue.gpus.end()) {
      *known = gpu;
    } else {
      catalogue.gpus.push_back(gpu);
    }
  }
}

Catalogue load_catalogue(const std::string& path) {
  Catalogue catalogue = built_in_catalogue();
  if (!path.empty()) add(catalogue, parse_catalogue(read_yaml(path)));
  return catalogue;
}

const Gpu* find_by_name(const Catalogue& catalogue, std::string_view name) {
  const auto found = std::ranges::find(catalogue.gpus, name, &Gpu::name);
  return found == catalogue.gpus.end() ? nullptr : &*found;
}

const Gpu* match_driver_name(const Catalogue& catalogue, const std::string& device_name) {
  const Gpu* found = nullptr;
  for (const Gpu& gpu : catalogue.gpus) {
    if (!is_called(gpu, device_name)) continue;
    if (found != nullptr) {
      throw Error(ExitCode::input, "GPU catalogue",
                  fmt::format("'{}' is both {} and {}", device_name, found->name, gpu.name),
                  "make their match and not expressions tell them apart");
    }
    found = &gpu;
  }
  return found;
}

std::optional<std::string> unknown_gpu(const Catalogue& catalogue, std::string_view gpu) {
  if (gpu == "cpu" || find_by_name(catalogue, gpu) != nullptr) return std::nullopt;
  std::vector<std::string> names;
  for (const Gpu& entry : catalogue.gpus) names.push_back(entry.name);
  const auto meant = did_you_mean(gpu, names);
  return fmt::format(
      "GPU '{}' is not in the catalogue{}: no memory check, and MFU will be empty unless the "
      "catalogue knows the name that its driver reports",
      gpu, meant ? fmt::format(" ({})", *meant) : "");
}

PeakOrReason peak(const Catalogue& catalogue, std::string_view gpu, Precision precision) {
  const Gpu* known = find_by_name(catalogue, gpu);
  if (known == nullptr) return {std::nullopt, fmt::format("GPU '{}' is not in the catalogue", gpu)};
  const auto entry = known->peak_tflops.find(std::string(to_text(precision)));
  if (entry == known->peak_tflops.end()) {
    return {std::nullopt,
            fmt::format("the catalogue has no {} peak for {}", to_text(precision), gpu)};
  }
  if (!entry->second)
    return {std::nullopt, fmt::format("{} has no {} units", gpu, to_text(precision))};
  return {entry->second, fmt::format("catalogue: {}", known->source)};
}

std::optional<std::string> incapable(const Catalogue& catalogue, std::string_view gpu,
                                     Precision precision) {
  const Gpu* known = find_by_name(catalogue, gpu);
  if (known == nullptr) return std::nullopt;
  const auto entry = known->peak_tflops.find(std::string(to_text(precision)));
  if (entry == known->peak_tflops.end() || entry->second) return std::nullopt;
  return fmt::format("{} has no {} units", gpu, to_text(precision));
}

}  // namespace tessera::hardware
