// SPDX-License-Identifier: Apache-2.0
#include "lib/hardware/gpu_type.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

using namespace tessera;
using namespace tessera::hardware;

namespace {

std::string names(const std::vector<const Gpu*>& gpus) {
  std::vector<std::string> all;
  for (const Gpu* gpu : gpus) all.push_back(gpu->name);
  return fmt::format("{}", fmt::join(all, " "));
}

std::string fits(const std::string& type) {
  static const Catalogue catalogue = built_in_catalogue();
  return names(meaning_of_type(catalogue, type).entries);
}

std::string relatives(const std::string& type) {
  static const Catalogue catalogue = built_in_catalogue();
  return names(meaning_of_type(catalogue, type).relatives);
}

}  // namespace

TEST_CASE("types that AutoDetect made of the driver's name are that device") {
  CHECK(fits("nvidia_h100_80gb_hbm3") == "h100_80gb");
  CHECK(fits("nvidia_h100_pcie") == "h100_pcie");
  CHECK(fits("nvidia_h200") == "h200");
  CHECK(fits("nvidia_a100-sxm4-80gb") == "a100_80gb");
  CHECK(fits("nvidia_a100-sxm4-40gb") == "a100_40gb");
  CHECK(fits("nvidia_a100_80gb_pcie") == "a100_80gb");
  CHECK(fits("nvidia_a100-pcie-40gb") == "a100_40gb");
  CHECK(fits("a100-sxm4-80gb") == "a100_80gb");
}

TEST_CASE("types that people write fit by whole words, whatever case and separators") {
  CHECK(fits("b200") == "b200");
  CHECK(fits("B200") == "b200");
  CHECK(fits("a100_80gb") == "a100_80gb");
  CHECK(fits("A100-40GB") == "a100_40gb");
  CHECK(fits("h100-pcie") == "h100_pcie");
  CHECK(fits("h100_nvl") == "h100_nvl");
  CHECK(fits("h200_nvl") == "h200_nvl");
  CHECK(fits("a100_sxm4_80gb") == "a100_80gb");
  CHECK(fits("NVIDIA-H100-80GB-HBM3") == "h100_80gb");  // as Kubernetes labels have it
  CHECK(fits("NVIDIA-L40S") == "l40s");
  CHECK(fits("v100-sxm2-32gb") == "v100_sxm2_32gb");
  CHECK(fits("gh200_480gb") == "gh200_96gb");
}

TEST_CASE("look-alikes by their first word are other devices") {
  for (const char* type :
       {"a10", "a10g", "a40", "l4", "l40", "l40s", "t4", "h20", "b200", "gb200", "b300"}) {
    CAPTURE(std::string(type));
    CHECK(fits(type) == type);
    CHECK(fits(std::string("nvidia_") + type) == type);
  }
}

TEST_CASE("words may be written as one, and the maker's brands be left out") {
  for (const char* type : {"rtx_4090", "rtx4090", "RTX-4090", "4090", "geforce_rtx_4090",
                           "nvidia_geforce_rtx_4090", "geforce-rtx-4090"}) {
    CAPTURE(std::string(type));
    CHECK(fits(type) == "rtx_4090");
  }
  for (const char* type : {"a6000", "rtx_a6000", "rtxa6000", "nvidia_rtx_a6000", "rtx-a6000"}) {
    CAPTURE(std::string(type));
    CHECK(fits(type) == "rtx_a6000");
  }
  for (const char* type : {"rtx_6000_ada", "rtx6000ada", "6000ada", "6000_ada", "rtx6000_ada",
                           "nvidia_rtx_6000_ada_generation"}) {
    CAPTURE(std::string(type));
    CHECK(fits(type) == "rtx_6000_ada");
  }
  CHECK(fits("quadro_rtx_6000") == "quadro_rtx_6000");
  CHECK(fits("h100nvl") == "h100_nvl");
  CHECK(fits("tesla_t4") == "t4");
  CHECK(fits("tesla_v100-sxm2-16gb") == "v100_sxm2_16gb");
  CHECK(fits("nvidia_b300_sxm6_ac") == "b300");
  CHECK(fits("nvidia_rtx_pro_6000_blackwell_server_edition") == "rtx_pro_6000_blackwell_server");
  CHECK(fits("nvidia_rtx_pro_6000_blackwell_max-q_workstation_edition") ==
        "rtx_pro_6000_blackwell_max_q");
}

TEST_CASE("a name that several devices have fits them all") {
  CHECK(fits("a100") == "a100_40gb a100_80gb");
  CHECK(fits("nvidia_a100") == "a100_40gb a100_80gb");
  CHECK(fits("h100") == "h100_80gb h100_pcie h100_nvl");
  CHECK(fits("h200") == "h200 h200_nvl");  // whoever has the other writes so too,
  CHECK(fits("nvidia_h200") == "h200");    // but not AutoDetect
  CHECK(fits("gh200") == "gh200_96gb gh200_144gb");
  const std::string v100s = "v100_sxm2_16gb v100_sxm2_32gb v100_pcie_16gb v100_pcie_32gb";
  CHECK(fits("v100") == v100s);
  CHECK(fits("tesla_v100") == v100s);
  CHECK(fits("v100_32gb") == "v100_sxm2_32gb v100_pcie_32gb");
  CHECK(fits("v100-sxm2") == "v100_sxm2_16gb v100_sxm2_32gb");
  const std::string pros =
      "rtx_pro_6000_blackwell_workstation rtx_pro_6000_blackwell_max_q "
      "rtx_pro_6000_blackwell_server";
  CHECK(fits("rtx_6000") == "quadro_rtx_6000 rtx_6000_ada " + pros);
  CHECK(fits("rtx6000") == "quadro_rtx_6000 rtx_6000_ada " + pros);
  for (const char* type :
       {"rtx_pro_6000", "rtxpro6000", "rtx_pro_6000_blackwell", "pro_6000", "6000_blackwell"}) {
    CAPTURE(std::string(type));
    CHECK(fits(type) == pros);
  }
}

TEST_CASE("what is another device fits none, and its relatives are named") {
  for (const char* type : {"a1",
                           "h10",
                           "l",
                           "v",
                           "a100_sxm",
                           "a100x",
                           "a10m",
                           "a30",
                           "a800",
                           "l40g",
                           "l20",
                           "t400",
                           "t4g",
                           "v100s",
                           "h800",
                           "h20-3e",
                           "gb300",
                           "rtx_4090_d",
                           "rtx_3090",
                           "rtx_6000d",
                           "rtx_pro_5000",
                           "pro",
                           "rtx_5000_ada",
                           "rtx_a5000",
                           "quadro_rtx_8000",
                           "rtx",
                           "quadro",
                           "geforce",
                           "tesla",
                           "nvidia",
                           "mi300x",
                           "80gb",
                           "sxm2_32gb",
                           "ada",
                           "blackwell",
                           "gpu",
                           "",
                           "-",
                           "_",
                           "__"}) {
    CAPTURE(std::string(type));
    CHECK(fits(type).empty());
  }
  CHECK(relatives("h200_141gb") == "h200 h200_nvl");
  CHECK(relatives("h20-3e") == "h20");
  CHECK(relatives("a100_sxm") == "a100_40gb a100_80gb");
  CHECK(relatives("rtx_4090_d") == "rtx_4090");
  CHECK(relatives("geforce_rtx_4090_laptop_gpu") == "rtx_4090");
  CHECK(relatives("rtx_3090").empty());  // for "rtx" is none
  CHECK(relatives("v100s").empty());
  CHECK(relatives("gb300").empty());
  CHECK(relatives("a100").empty());  // there it fits
}

TEST_CASE("an entry's own name fits it, and the driver's name of one fits no second") {
  const Catalogue catalogue = built_in_catalogue();
  for (const Gpu& gpu : catalogue.gpus) {
    CAPTURE(gpu.name);
    const auto meaning = meaning_of_type(catalogue, gpu.name);
    CHECK(std::ranges::find(meaning.entries, &gpu) != meaning.entries.end());
    if (gpu.name != "h200") CHECK(meaning.entries.size() == 1);
  }
}

TEST_CASE("a part of a GPU is no GPU of the catalogue") {
  const Catalogue catalogue = built_in_catalogue();
  for (const char* type : {"a100_3g.20gb", "nvidia_a100_1g.5gb", "1g.10gb", "h100_1g.10gb.me",
                           "nvidia_h100_80gb_hbm3_1g.10gb"}) {
    CAPTURE(type);
    const GpuTypeMeaning meaning = meaning_of_type(catalogue, type);
    CHECK(meaning.is_slice);
    CHECK(meaning.entries.empty());
  }
  CHECK_FALSE(meaning_of_type(catalogue, "a100_80gb").is_slice);
}

TEST_CASE("entries of a user's catalogue count, and what they rule out does") {
  Catalogue catalogue = built_in_catalogue();
  add(catalogue, parse_catalogue(parse_yaml(
                     "tessera_gpus: 1\n"
                     "b200_air: {match: [\"B200\"], not: [\"^NVIDIA G?B200$\"], memory_gib: 139, "
                     "peak_tflops: {}, source: a data sheet}\n",
                     "g.yaml")));
  CHECK(names(meaning_of_type(catalogue, "nvidia_b200_air").entries) == "b200_air");
  CHECK(names(meaning_of_type(catalogue, "nvidia_b200").entries) == "b200");
  CHECK(names(meaning_of_type(catalogue, "b200").entries) == "b200 b200_air");
}
