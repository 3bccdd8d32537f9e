// SPDX-License-Identifier: Apache-2.0
// Our own kernels, emulated, against the CPU device: every case of the table, with the threads of a
// block in every order. TESSERA_CASES, if set, names the cases to run, one a line (mutate.py).
#include <doctest/doctest.h>

#include <cstdlib>
#include <string_view>

#include "tests/trainer/device/cuda/emulator/emulated_device.h"
#include "trainer/device/cuda/emulator/emulator.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

using cuda::emulator::Order;

Outcome run_emulated(const Case& c, DType dtype, int multiprocessors = 3,
                     AttentionWorkspace attention = AttentionWorkspace::all) {
  const auto device = emulated_device(multiprocessors, attention);
  HostMemory memory;
  return run_case(c, dtype, *device, [&](std::int64_t bytes) { return memory(bytes); });
}

bool is_wanted(const std::string& name) {
  const char* const names = std::getenv("TESSERA_CASES");
  return names == nullptr || std::string_view(names).find(name + '\n') != std::string_view::npos;
}

}  // namespace

TEST_CASE("attention is the same in as many chunks as its least workspace asks for") {
  for (const Case& c : attention_cases()) {
    CAPTURE(c.name);
    const Outcome reference = run_case(c, DType::f64);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(bytes_of(dtype));
      const Outcome outcome = run_emulated(c, dtype, 3, AttentionWorkspace::least);
      CHECK(outcome.overrun.empty());
      for (const std::string& name : outcome.compared) {
        CAPTURE(name);
        CHECK(distance(outcome.values.at(name), reference.values.at(name)) <=
              (dtype == DType::f32 ? c.f32_tolerance : c.bf16_tolerance));
      }
    }
  }
}

TEST_CASE(
    "emulated kernels agree with f64 as far as the CPU device must, in every order on any GPU") {
  for (const Case& c : cases()) {
    if (!is_wanted(c.name)) continue;
    CAPTURE(c.name);
    const Outcome reference = run_case(c, c.has_f64 ? DType::f64 : DType::f32);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(bytes_of(dtype));
      std::vector<std::byte> bytes;
      // The last runs on one multiprocessor: grid-stride loops give the same bits for any number.
      for (const Order order : {Order::forward, Order::reversed, Order::random}) {
        CAPTURE(static_cast<int>(order));
        cuda::emulator::options().order = order;
        const Outcome outcome = run_emulated(c, dtype, order == Order::random ? 1 : 3);
        CHECK(outcome.overrun.empty());
        for (const std::string& name : outcome.compared) {
          CAPTURE(name);
          CHECK(distance(outcome.values.at(name), reference.values.at(name)) <=
                (dtype == DType::f32 ? c.f32_tolerance : c.bf16_tolerance));
        }
        if (order == Order::forward) bytes = outcome.bytes;
        CHECK(outcome.bytes == bytes);
      }
      cuda::emulator::options().order = Order::forward;
    }
  }
}
