// SPDX-License-Identifier: Apache-2.0
// The built-in catalogue's figures against what they must be: units of a chip times its clock, and
// the rates of one precision to another.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lib/base/file.h"
#include "lib/hardware/catalogue.h"

using namespace tessera;
using namespace tessera::hardware;

namespace {

const Catalogue& catalogue() {
  static const Catalogue built_in = built_in_catalogue();
  return built_in;
}

std::optional<double> figure(const Gpu& gpu, const std::string& precision) {
  const auto entry = gpu.peak_tflops.find(precision);
  return entry == gpu.peak_tflops.end() ? std::nullopt : entry->second;
}

// Streaming multiprocessors, boost clock, and of one multiprocessor each clock: fp32 operations of
// its cores and dense 16 bit operations of its tensor units that accumulate in f32.
struct Chip {
  const char* name;
  double units;
  double mhz;
  double fp32_per_clock;
  double half_per_clock;

  double tflops(double per_clock) const { return units * mhz * 1e6 * per_clock / 1e12; }
};

constexpr Chip kChips[] = {
    {"v100_sxm2_16gb", 80, 1530, 128, 1024},
    {"v100_sxm2_32gb", 80, 1530, 128, 1024},
    {"v100_pcie_16gb", 80, 1370, 128, 1024},
    {"v100_pcie_32gb", 80, 1370, 128, 1024},
    {"a100_40gb", 108, 1410, 128, 2048},
    {"a100_80gb", 108, 1410, 128, 2048},
    {"t4", 40, 1590, 128, 1024},
    {"a10", 72, 1695, 256, 1024},
    {"a10g", 80, 1710, 256, 512},
    {"a40", 84, 1740, 256, 1024},
    {"rtx_a6000", 84, 1800, 256, 1024},
    {"l4", 58, 2040, 256, 1024},
    {"l40", 142, 2490, 256, 512},
    {"l40s", 142, 2520, 256, 1024},
    {"rtx_4090", 128, 2520, 256, 512},
    {"rtx_6000_ada", 142, 2505, 256, 1024},
    {"rtx_5090", 170, 2407, 256, 512},
    {"rtx_pro_6000_blackwell_workstation", 188, 2617, 256, 1024},
};

}  // namespace

TEST_CASE("peaks are units x clock x operations a clock") {
  for (const Chip& chip : kChips) {
    CAPTURE(std::string(chip.name));
    const Gpu* gpu = find_by_name(catalogue(), chip.name);
    REQUIRE(gpu != nullptr);
    CHECK(figure(*gpu, "fp32").value() ==
          doctest::Approx(chip.tflops(chip.fp32_per_clock)).epsilon(0.013));
    CHECK(figure(*gpu, "amp_fp16").value() ==
          doctest::Approx(chip.tflops(chip.half_per_clock)).epsilon(0.013));
  }
  // A Hopper's cores clock higher than its tensor units may.
  for (const auto& [name, units, core_mhz, tensor_mhz] :
       {std::tuple("h100_80gb", 132.0, 1980.0, 1830.0),
        {"h200", 132.0, 1980.0, 1830.0},
        {"gh200_96gb", 132.0, 1980.0, 1830.0},
        {"gh200_144gb", 132.0, 1980.0, 1830.0},
        {"h100_pcie", 114.0, 1755.0, 1620.0},
        {"h100_nvl", 132.0, 1785.0, 1545.0},
        {"h200_nvl", 132.0, 1785.0, 1545.0}}) {
    CAPTURE(std::string(name));
    const Gpu* gpu = find_by_name(catalogue(), name);
    REQUIRE(gpu != nullptr);
    CHECK(figure(*gpu, "fp32").value() ==
          doctest::Approx(units * core_mhz * 256 / 1e6).epsilon(0.013));
    CHECK(figure(*gpu, "amp_bf16").value() ==
          doctest::Approx(units * tensor_mhz * 4096 / 1e6).epsilon(0.013));
  }
}

TEST_CASE("one precision's rate follows from another's, so that a sparse figure stands out") {
  for (const Gpu& gpu : catalogue().gpus) {
    CAPTURE(gpu.name);
    const auto half = figure(gpu, "amp_fp16");
    const auto bf16 = figure(gpu, "amp_bf16");
    const auto tf32 = figure(gpu, "tf32");
    const auto fp8 = figure(gpu, "amp_fp8");
    if (half && bf16) CHECK(*half == *bf16);
    if (bf16 && tf32) CHECK(*tf32 == doctest::Approx(*bf16 / 2).epsilon(0.012));
    if (bf16 && fp8) CHECK(*fp8 == doctest::Approx(*bf16 * 2).epsilon(0.013));
    CHECK(bf16.has_value() == tf32.has_value());  // both came with Ampere
    if (fp8) CHECK(bf16.has_value());
    if (half) CHECK(*half > figure(gpu, "fp32").value());
  }
}

TEST_CASE("a precision that a generation has no units for is null, not left out") {
  const auto is_without = [](const Gpu& gpu, Precision precision) {
    return incapable(catalogue(), gpu.name, precision).has_value();
  };
  for (const Gpu& gpu : catalogue().gpus) {
    CAPTURE(gpu.name);
    const bool is_old =
        gpu.name.starts_with("v100") || gpu.name == "t4" || gpu.name == "quadro_rtx_6000";
    const bool is_ampere =
        gpu.name.starts_with("a1") || gpu.name == "a40" || gpu.name == "rtx_a6000";
    CHECK(is_without(gpu, Precision::amp_bf16) == is_old);
    CHECK(is_without(gpu, Precision::amp_fp8) == (is_old || is_ampere));
    CHECK_FALSE(is_without(gpu, Precision::amp_fp16));
    CHECK_FALSE(is_without(gpu, Precision::fp32));
  }
}

TEST_CASE("memory is what is sold less what the driver keeps, and the reserve a small part of it") {
  struct Sold {
    const char* name;
    double gb;
  };
  constexpr Sold kSold[] = {{"v100_sxm2_16gb", 16},
                            {"v100_sxm2_32gb", 32},
                            {"v100_pcie_16gb", 16},
                            {"v100_pcie_32gb", 32},
                            {"a100_40gb", 40},
                            {"a100_80gb", 80},
                            {"h100_80gb", 80},
                            {"h100_pcie", 80},
                            {"h100_nvl", 94},
                            {"h200", 141},
                            {"h200_nvl", 141},
                            {"gh200_96gb", 96},
                            {"gh200_144gb", 144},
                            {"h20", 96},
                            {"b200", 180},
                            {"gb200", 186},
                            {"b300", 288},
                            {"t4", 16},
                            {"a10", 24},
                            {"a10g", 24},
                            {"a40", 48},
                            {"l4", 24},
                            {"l40", 48},
                            {"l40s", 48},
                            {"quadro_rtx_6000", 24},
                            {"rtx_a6000", 48},
                            {"rtx_4090", 24},
                            {"rtx_6000_ada", 48},
                            {"rtx_5090", 32},
                            {"rtx_pro_6000_blackwell_workstation", 96},
                            {"rtx_pro_6000_blackwell_max_q", 96},
                            {"rtx_pro_6000_blackwell_server", 96}};
  CHECK(std::size(kSold) == catalogue().gpus.size());
  for (const Sold& sold : kSold) {
    CAPTURE(std::string(sold.name));
    const Gpu* gpu = find_by_name(catalogue(), sold.name);
    REQUIRE(gpu != nullptr);
    // Makers count GB of 2^30 bytes for most, of 10^9 for some.
    CHECK(gpu->memory_gib <= sold.gb);
    CHECK(gpu->memory_gib >= sold.gb * 0.905);
    CHECK(gpu->reserve_gib >= 1);
    CHECK(gpu->reserve_gib <= gpu->memory_gib * 0.07);
  }
}

// developer.nvidia.com/cuda-gpus.
TEST_CASE("compute capabilities are as NVIDIA lists them") {
  const std::map<int, std::vector<std::string>> listed{
      {70, {"v100_sxm2_16gb", "v100_sxm2_32gb", "v100_pcie_16gb", "v100_pcie_32gb"}},
      {75, {"t4", "quadro_rtx_6000"}},
      {80, {"a100_40gb", "a100_80gb"}},
      {86, {"a10", "a10g", "a40", "rtx_a6000"}},
      {89, {"l4", "l40", "l40s", "rtx_4090", "rtx_6000_ada"}},
      {90,
       {"h100_80gb", "h100_pcie", "h100_nvl", "h200", "h200_nvl", "h20", "gh200_96gb",
        "gh200_144gb"}},
      {100, {"b200", "gb200"}},
      {103, {"b300"}},
      {120,
       {"rtx_5090", "rtx_pro_6000_blackwell_workstation", "rtx_pro_6000_blackwell_max_q",
        "rtx_pro_6000_blackwell_server"}}};
  std::size_t entries = 0;
  for (const auto& [capability, names] : listed) {
    entries += names.size();
    for (const std::string& name : names) {
      CAPTURE(name);
      const Gpu* gpu = find_by_name(catalogue(), name);
      REQUIRE(gpu != nullptr);
      CHECK(gpu->compute_capability == capability);
    }
  }
  CHECK(entries == catalogue().gpus.size());
}

TEST_CASE("the document lists the entries with their peaks") {
  const std::string text = read_file("docs/formats.md");
  for (const Gpu& gpu : catalogue().gpus) {
    CAPTURE(gpu.name);
    const std::size_t at = text.find(fmt::format("`{}`", gpu.name));
    REQUIRE(at != std::string::npos);
    const std::string row = text.substr(at, text.find('\n', at) - at);
    const auto half = figure(gpu, "amp_fp16");
    CHECK(row.find(half ? fmt::format("{}", *half) : "not known") != std::string::npos);
  }
}

TEST_CASE("each figure says where it is from") {
  for (const Gpu& gpu : catalogue().gpus) {
    CAPTURE(gpu.name);
    CHECK(gpu.source.starts_with("NVIDIA "));
    CHECK(gpu.source.size() > 20);
    const auto found = peak(catalogue(), gpu.name, Precision::fp32);
    CHECK(found.text == (found.tflops
                             ? "catalogue: " + gpu.source
                             : fmt::format("the catalogue has no fp32 peak for {}", gpu.name)));
  }
}
