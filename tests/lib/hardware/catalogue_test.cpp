#include "lib/hardware/catalogue.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::hardware;

namespace {

std::string matched(const std::string& device_name) {
  static const Catalogue catalogue = built_in_catalogue();
  const Gpu* gpu = match_driver_name(catalogue, device_name);
  return gpu != nullptr ? gpu->name : "none";
}

std::string fault(const std::string& yaml) {
  try {
    parse_catalogue(parse_yaml(yaml, "g.yaml"));
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::input);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("names that drivers report") {
  CHECK(matched("NVIDIA A100-SXM4-40GB") == "a100_40gb");
  CHECK(matched("NVIDIA A100-PCIE-40GB") == "a100_40gb");
  CHECK(matched("A100-SXM4-40GB") == "a100_40gb");
  CHECK(matched("NVIDIA A100-SXM4-80GB") == "a100_80gb");
  CHECK(matched("NVIDIA A100 80GB PCIe") == "a100_80gb");
  CHECK(matched("NVIDIA H100 80GB HBM3") == "h100_80gb");
  CHECK(matched("NVIDIA H100 PCIe") == "h100_pcie");
  CHECK(matched("NVIDIA H200") == "h200");
}

TEST_CASE("look-alikes are nobody") {
  for (const char* name :
       {"NVIDIA RTX A1000", "NVIDIA RTX A1000 Laptop GPU", "NVIDIA A10", "NVIDIA A10G",
        "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA GH200 480GB", "NVIDIA GH200 144G HBM3e",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA H800",
        "NVIDIA A100X", "NVIDIA GRID A100-40C", "NVIDIA H20", "", "Tesla V100-SXM2-16GB"}) {
    CAPTURE(name);
    CHECK(matched(name) == "none");
  }
}

TEST_CASE("a peak comes with its source, or with the reason there is none") {
  const Catalogue catalogue = built_in_catalogue();
  CHECK(peak(catalogue, "h100_80gb", Precision::amp_bf16).tflops == 989.5);
  CHECK(peak(catalogue, "h100_80gb", Precision::amp_bf16).text ==
        "catalogue: NVIDIA H100 Tensor Core GPU data sheet, SXM, dense");
  CHECK(peak(catalogue, "h100_80gb", Precision::amp_fp8).tflops == 1979);
  CHECK(peak(catalogue, "h100_pcie", Precision::amp_fp16).tflops == 756.5);
  CHECK(peak(catalogue, "h200", Precision::fp32).tflops == 67);
  CHECK(peak(catalogue, "a100_40gb", Precision::amp_bf16).tflops == 312);
  const auto none = peak(catalogue, "a100_80gb", Precision::amp_fp8);
  CHECK_FALSE(none.tflops.has_value());
  CHECK(none.text == "a100_80gb has no amp_fp8 units");
  CHECK(peak(catalogue, "b200", Precision::fp32).text == "GPU 'b200' is not in the catalogue");
  CHECK(incapable(catalogue, "a100_80gb", Precision::amp_fp8) == "a100_80gb has no amp_fp8 units");
  CHECK_FALSE(incapable(catalogue, "b200", Precision::amp_fp8).has_value());
  CHECK_FALSE(incapable(catalogue, "h200", Precision::amp_fp8).has_value());
}

TEST_CASE("a file adds entries, a known name is replaced") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "more.yaml";
  std::ofstream(path) << "tessera_gpus: 1\n"
                         "l4: {match: ['^NVIDIA L4$'], memory_gib: 22.5, peak_tflops: {amp_bf16: "
                         "121}, source: data sheet}\n"
                         "h200: {match: ['^NVIDIA H200$'], memory_gib: 139.8, peak_tflops: "
                         "{amp_bf16: 900}, source: mine}\n";
  const Catalogue catalogue = load_catalogue(path);
  CHECK(match_driver_name(catalogue, "NVIDIA L4")->name == "l4");
  CHECK(match_driver_name(catalogue, "NVIDIA L40") == nullptr);
  CHECK(peak(catalogue, "h200", Precision::amp_bf16).tflops == 900);
  CHECK(peak(catalogue, "l4", Precision::fp32).text == "the catalogue has no fp32 peak for l4");
  CHECK(catalogue.gpus.size() == built_in_catalogue().gpus.size() + 1);
}

TEST_CASE("faults of a catalogue") {
  CHECK(fault("a: 1\n") == "g.yaml:1:1: a GPU catalogue lacks 'tessera_gpus'");
  CHECK(fault("tessera_gpus: 1\nx: {match: ['('], memory_gib: 1, peak_tflops: {}, source: s}\n") ==
        "g.yaml:2:13: '(' is not a regular expression");
  CHECK(fault("tessera_gpus: 1\nx: {match: [a], memory_gib: 0, peak_tflops: {}, source: s}\n") ==
        "g.yaml:2:29: 0 is not positive");
  CHECK(fault("tessera_gpus: 1\nx: {match: [a], memory_gib: 1, peak_tflops: {amp_bf61: 1}, source: "
              "s}\n") ==
        "g.yaml:2:46: unknown key 'amp_bf61' in peak_tflops; did you mean amp_bf16?");
  const Catalogue twins = parse_catalogue(
      parse_yaml("tessera_gpus: 1\nx: {match: [L4], memory_gib: 1, peak_tflops: {}, source: s}\n"
                 "y: {match: [L4], memory_gib: 1, peak_tflops: {}, source: s}\n",
                 "g.yaml"));
  CHECK_THROWS_AS(match_driver_name(twins, "NVIDIA L4"), Error);
}
