#include "lib/hardware/gpu_type.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

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
  CHECK(fits("h200") == "h200");
  CHECK(fits("H200") == "h200");
  CHECK(fits("a100_80gb") == "a100_80gb");
  CHECK(fits("A100-40GB") == "a100_40gb");
  CHECK(fits("h100-pcie") == "h100_pcie");
  CHECK(fits("a100_sxm4_80gb") == "a100_80gb");
  CHECK(fits("NVIDIA-H100-80GB-HBM3") == "h100_80gb");  // as Kubernetes labels have it
}

TEST_CASE("a name that two devices have fits both") {
  CHECK(fits("a100") == "a100_40gb a100_80gb");
  CHECK(fits("nvidia_a100") == "a100_40gb a100_80gb");
  CHECK(fits("h100") == "h100_80gb h100_pcie");
}

TEST_CASE("what is another device fits none, and its relatives are named") {
  for (const char* type : {"a10", "a1", "h10", "gh200", "h200_nvl", "nvidia_h200_nvl", "h100_nvl",
                           "mi300x", "v100", "a100_sxm", "80gb", "gpu", "", "-", "_"}) {
    CAPTURE(type);
    CHECK(fits(type).empty());
  }
  CHECK(relatives("h200_nvl") == "h200");
  CHECK(relatives("a100_sxm") == "a100_40gb a100_80gb");
  CHECK(relatives("v100").empty());
  CHECK(relatives("gh200").empty());
  CHECK(relatives("a100").empty());  // there it fits
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
                     "h200_nvl: {match: [\"H200\"], not: [\"^NVIDIA H200$\"], memory_gib: 139, "
                     "peak_tflops: {}, source: a data sheet}\n",
                     "g.yaml")));
  CHECK(names(meaning_of_type(catalogue, "nvidia_h200_nvl").entries) == "h200_nvl");
  CHECK(names(meaning_of_type(catalogue, "nvidia_h200").entries) == "h200");
  CHECK(names(meaning_of_type(catalogue, "h200").entries) == "h200 h200_nvl");
}
