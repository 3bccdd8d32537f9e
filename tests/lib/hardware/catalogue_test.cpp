// SPDX-License-Identifier: Apache-2.0
#include "lib/hardware/catalogue.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/temporary.h"

using namespace tessera;
using namespace tessera::hardware;

namespace {

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
  CHECK(peak(catalogue, "z900", Precision::fp32).text == "GPU 'z900' is not in the catalogue");
  CHECK(incapable(catalogue, "a100_80gb", Precision::amp_fp8) == "a100_80gb has no amp_fp8 units");
  CHECK_FALSE(incapable(catalogue, "z900", Precision::amp_fp8).has_value());
  CHECK_FALSE(incapable(catalogue, "h200", Precision::amp_fp8).has_value());
}

TEST_CASE("a file adds entries, a known name is replaced") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "more.yaml";
  std::ofstream(path) << "tessera_gpus: 1\n"
                         "z9: {match: ['^NVIDIA Z9$'], memory_gib: 22.5, peak_tflops: {amp_bf16: "
                         "121}, source: data sheet}\n"
                         "h200: {match: ['^NVIDIA H200$'], memory_gib: 139.8, peak_tflops: "
                         "{amp_bf16: 900}, source: mine}\n";
  const Catalogue catalogue = load_catalogue(path);
  CHECK(match_driver_name(catalogue, "NVIDIA Z9")->name == "z9");
  CHECK(match_driver_name(catalogue, "NVIDIA Z90") == nullptr);
  CHECK(peak(catalogue, "h200", Precision::amp_bf16).tflops == 900);
  CHECK(peak(catalogue, "z9", Precision::fp32).text == "the catalogue has no fp32 peak for z9");
  CHECK(catalogue.gpus.size() == built_in_catalogue().gpus.size() + 1);
}

TEST_CASE("what an entry does not say: 2 GiB of reserve, and no compute capability") {
  const Catalogue catalogue = parse_catalogue(parse_yaml(
      "tessera_gpus: 1\nx: {match: [a], memory_gib: 22.5, peak_tflops: {}, source: s}\n"
      "y: {match: [b], memory_gib: 22.5, reserve_gib: 0.5, compute_capability: 10.3, peak_tflops: "
      "{}, source: s}\n",
      "g.yaml"));
  CHECK(catalogue.gpus[0].reserve_gib == 2);
  CHECK(catalogue.gpus[0].compute_capability == 0);
  CHECK(catalogue.gpus[1].reserve_gib == 0.5);
  CHECK(catalogue.gpus[1].compute_capability == 103);
}

TEST_CASE("a GPU without an entry is told with the entries that may be meant") {
  const Catalogue catalogue = built_in_catalogue();
  const std::string rest =
      ": no memory check, and MFU will be empty unless the catalogue knows the name that its "
      "driver reports";
  CHECK(unknown_gpu(catalogue, "h2000") ==
        "GPU 'h2000' is not in the catalogue (did you mean h200?)" + rest);
  CHECK(unknown_gpu(catalogue, "H200") ==
        "GPU 'H200' is not in the catalogue (did you mean h200?)" + rest);
  CHECK(unknown_gpu(catalogue, "h100") ==
        "GPU 'h100' is not in the catalogue (did you mean h100_80gb or h100_pcie or h100_nvl?)" +
            rest);
  CHECK(unknown_gpu(catalogue, "mi300x") == "GPU 'mi300x' is not in the catalogue" + rest);
  CHECK_FALSE(unknown_gpu(catalogue, "h200").has_value());
  CHECK_FALSE(unknown_gpu(catalogue, "cpu").has_value());
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
  const auto entry = [](const std::string& more) {
    return "tessera_gpus: 1\nx: {match: [a], memory_gib: 2, peak_tflops: {}, source: s" + more +
           "}\n";
  };
  CHECK(fault(entry("")) ==
        "g.yaml:2:4: reserve_gib (2, as it is left out) is not less than memory_gib");
  CHECK(fault(entry(", reserve_gib: 2.5")) ==
        "g.yaml:2:4: reserve_gib (2.5) is not less than memory_gib");
  for (const char* wrong : {"9", "9.", ".0", "9.01", "sm_90", "0.1", "900.0", "9.x"}) {
    CAPTURE(wrong);
    CHECK(
        fault(entry(std::string(", compute_capability: ") + wrong))
            .ends_with(std::string("'") + wrong + "' is no compute capability; write it like 9.0"));
  }
  const Catalogue twins = parse_catalogue(
      parse_yaml("tessera_gpus: 1\nx: {match: [L4], memory_gib: 8, peak_tflops: {}, source: s}\n"
                 "y: {match: [L4], memory_gib: 8, peak_tflops: {}, source: s}\n",
                 "g.yaml"));
  CHECK_THROWS_AS(match_driver_name(twins, "NVIDIA L4"), Error);
}
