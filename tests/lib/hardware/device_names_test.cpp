// SPDX-License-Identifier: Apache-2.0
// Names that NVIDIA's drivers report (of its open kernel modules' list of devices and of
// nvidia-smi), and the one entry of the built-in catalogue that each is, or none.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "lib/hardware/catalogue.h"

using namespace tessera;
using namespace tessera::hardware;

namespace {

struct Device {
  const char* name;
  const char* entry;
};

constexpr Device kDevices[] = {
    {"Tesla V100-SXM2-16GB", "v100_sxm2_16gb"},
    {"Tesla V100-SXM2-32GB", "v100_sxm2_32gb"},
    {"Tesla V100-PCIE-16GB", "v100_pcie_16gb"},
    {"Tesla V100-PCIE-32GB", "v100_pcie_32gb"},
    {"A100-SXM4-40GB", "a100_40gb"},
    {"NVIDIA A100-SXM4-40GB", "a100_40gb"},
    {"NVIDIA A100-PCIE-40GB", "a100_40gb"},
    {"NVIDIA A100-SXM4-80GB", "a100_80gb"},
    {"NVIDIA A100 80GB PCIe", "a100_80gb"},
    {"NVIDIA H100 80GB HBM3", "h100_80gb"},
    {"NVIDIA H100 PCIe", "h100_pcie"},
    {"NVIDIA H100 NVL", "h100_nvl"},
    {"NVIDIA H200", "h200"},
    {"NVIDIA H200 NVL", "h200_nvl"},
    {"NVIDIA GH200 120GB", "gh200_96gb"},
    {"NVIDIA GH200 480GB", "gh200_96gb"},
    {"NVIDIA GH200 144G HBM3e", "gh200_144gb"},
    {"NVIDIA H20", "h20"},
    {"NVIDIA B200", "b200"},
    {"NVIDIA GB200", "gb200"},
    {"NVIDIA B300 SXM6 AC", "b300"},
    {"Tesla T4", "t4"},
    {"NVIDIA A10", "a10"},
    {"NVIDIA A10G", "a10g"},
    {"NVIDIA A40", "a40"},
    {"NVIDIA L4", "l4"},
    {"NVIDIA L40", "l40"},
    {"NVIDIA L40S", "l40s"},
    {"Quadro RTX 6000", "quadro_rtx_6000"},
    {"NVIDIA RTX A6000", "rtx_a6000"},
    {"NVIDIA GeForce RTX 4090", "rtx_4090"},
    {"NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"},
    {"NVIDIA GeForce RTX 5090", "rtx_5090"},
    {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx_pro_6000_blackwell_workstation"},
    {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx_pro_6000_blackwell_max_q"},
    {"NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000_blackwell_server"},
};

// Other boards of the same chips, slices of those above, other makers' names.
constexpr const char* kNobody[] = {
    "",
    "NVIDIA",
    "GPU",
    // V100
    "Tesla V100-FHHL-16GB",
    "Tesla V100S-PCIE-32GB",
    "Tesla V100-SXM3-32GB",
    "Tesla V100-SXM3-32GB-H",
    "Tesla V100-SXM2-32GB-LS",
    "Tesla V100-DGXS-16GB",
    "Tesla V100-DGXS-32GB",
    "Quadro GV100",
    "NVIDIA TITAN V",
    "GRID V100DX-32Q",
    "GRID V100-16C",
    // T4
    "NVIDIA T4G",
    "NVIDIA T400",
    "NVIDIA T400 4GB",
    "Tesla T40 24GB",
    "GRID T4-16C",
    // A100, A10, A40, A6000
    "NVIDIA A100X",
    "NVIDIA A100-SXM-64GB",
    "NVIDIA A100-PG509-200",
    "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
    "NVIDIA A100 80GB PCIe MIG 1g.10gb",
    "NVIDIA A100 80GB PCIe LC",
    "NVIDIA A800-SXM4-80GB",
    "NVIDIA A800 80GB PCIe",
    "NVIDIA A800 40GB Active",
    "NVIDIA GRID A100-40C",
    "NVIDIA A10M",
    "NVIDIA A10-24Q",
    "NVIDIA A10G-24Q",
    "NVIDIA A16",
    "NVIDIA A2",
    "NVIDIA A30",
    "NVIDIA A40-48Q",
    "NVIDIA RTX A400",
    "NVIDIA RTX A4000",
    "NVIDIA RTX A1000",
    "NVIDIA RTX A1000 Laptop GPU",
    "NVIDIA RTX A6000-48Q",
    "NVIDIA RTX A5000",
    "Quadro RTX A6000",
    // H100, H200, H20
    "NVIDIA H100",
    "NVIDIA H100 SXM5 64GB",
    "NVIDIA H100 SXM5 96GB",
    "NVIDIA H100 96GB HBM3",
    "NVIDIA H100 80GB HBM2e",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "NVIDIA H100 NVL MIG 1g.12gb",
    "NVIDIA H100XM-80C",
    "NVIDIA H100L-94C",
    "NVIDIA H800",
    "NVIDIA H800 PCIe",
    "NVIDIA H800 NVL",
    "NVIDIA H200 MIG 1g.18gb",
    "NVIDIA H200X-141C",
    "NVIDIA H20-3e",
    "NVIDIA H20 NVL16",
    "NVIDIA H20 MIG 1g.12gb",
    "NVIDIA GH200",
    "NVIDIA GH200 480GB MIG 1g.12gb",
    "NVIDIA GH200 144G HBM3e MIG 1g.18gb",
    // Blackwell
    "NVIDIA B100",
    "NVIDIA B200 MIG 1g.23gb",
    "NVIDIA GB200 MIG 1g.23gb",
    "NVIDIA B300",
    "NVIDIA B300 SXM6 AC MIG 1g.34gb",
    "NVIDIA GB300",
    "NVIDIA GB10",
    // L4, L40, L40S
    "NVIDIA L2",
    "NVIDIA L20",
    "NVIDIA L40G",
    "NVIDIA L40S-48Q",
    "NVIDIA L40-48C",
    "NVIDIA L4-24Q",
    // GeForce and workstations
    "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 4080 SUPER",
    "NVIDIA GeForce RTX 5090 D",
    "NVIDIA GeForce RTX 5090 D v2",
    "NVIDIA GeForce RTX 5090 Laptop GPU",
    "Quadro RTX 5000",
    "Quadro RTX 6000 with Max-Q Design",
    "Quadro RTX 8000",
    "NVIDIA RTX 5000 Ada Generation",
    "NVIDIA RTX 5880 Ada Generation",
    "NVIDIA RTX 6000D",
    "NVIDIA RTX 6000",
    "NVIDIA RTX PRO 6000",
    "NVIDIA RTX PRO 5000 Blackwell",
    "NVIDIA RTX PRO 5000 72GB Blackwell",
    "NVIDIA RTX PRO 4500 Blackwell Server Edition",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition MIG 2g.48gb",
    // Makers before the name, spaces, letter case
    "ASUS NVIDIA GeForce RTX 4090",
    "EIZO Quadro RTX 6000",
    "AMD H100 PCIe",
    "AMD Instinct MI300X",
    "NVIDIA NVIDIA H200",
    " NVIDIA H200",
    "NVIDIA H200 ",
    "nvidia h200",
    "NVIDIA-H200",
    "2 x NVIDIA L4",
};

}  // namespace

TEST_CASE("a driver's name is one entry of the catalogue, a look-alike's none") {
  const Catalogue catalogue = built_in_catalogue();
  std::set<std::string> matched;
  for (const Device& device : kDevices) {
    CAPTURE(std::string(device.name));
    const Gpu* gpu = nullptr;
    REQUIRE_NOTHROW(gpu = match_driver_name(catalogue, device.name));  // nor two
    REQUIRE(gpu != nullptr);
    CHECK(gpu->name == device.entry);
    matched.insert(gpu->name);
  }
  for (const char* name : kNobody) {
    CAPTURE(std::string(name));
    const Gpu* gpu = nullptr;
    REQUIRE_NOTHROW(gpu = match_driver_name(catalogue, name));
    CHECK((gpu != nullptr ? gpu->name : "none") == "none");
  }
  for (const Gpu& gpu : catalogue.gpus) {
    CAPTURE(gpu.name);
    CHECK(matched.contains(gpu.name));  // none without a name that a driver has
  }
}

TEST_CASE("a slice of any device, or a variant of it, is not the device") {
  const Catalogue catalogue = built_in_catalogue();
  for (const Device& device : kDevices) {
    for (const char* more : {" MIG 1g.10gb", "-48Q", " D", " Laptop GPU", " LC", "X", "0"}) {
      const std::string name = std::string(device.name) + more;
      CAPTURE(name);
      const auto known = std::ranges::find(kDevices, name, &Device::name);
      if (known == std::end(kDevices)) CHECK(match_driver_name(catalogue, name) == nullptr);
    }
  }
}
