// SPDX-License-Identifier: Apache-2.0
// access() knows every tensor and pointer of every operation. ops_test.cpp tests, by running
// operations, that it is right about them.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "trainer/device/fields.h"
#include "trainer/selftest/run_case.h"

using namespace tessera;
using namespace tessera::trainer;
using namespace tessera::trainer::test;

namespace {

constexpr std::uintptr_t kFirst = 1 << 20;
constexpr std::uintptr_t kApart = 1 << 16;

// Gives every tensor and pointer of an operation its own memory. Shapes need not fit: nothing runs.
class Placer {
 public:
  void operator()(const Tensor& t) { const_cast<Tensor&>(t) = {next(), DType::f32, 4, 8, 8}; }
  template <class T>
  void operator()(T* const& p) {
    const_cast<T*&>(p) = static_cast<T*>(next());
  }
  void operator()(const AttentionShape& s) { const_cast<AttentionShape&>(s) = {1, 4, 2, 1, 2}; }
  void operator()(const bool& flag) { const_cast<bool&>(flag) = accumulate; }
  void operator()(const std::int64_t& count) { const_cast<std::int64_t&>(count) = 4; }
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void operator()(const T&) {}

  std::size_t places() const { return places_; }
  bool accumulate = false;

 private:
  void* next() {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address, not a place
    return reinterpret_cast<void*>(kFirst + places_++ * kApart);
  }
  std::size_t places_ = 0;
};

template <class T>
void check(bool accumulate) {
  T op;
  CAPTURE(op_name(Op(op)));
  Placer place;
  place.accumulate = accumulate;
  visit_fields(op, [&](const auto&... fields) { (place(fields), ...); });
  const Access all = access(op);
  std::set<std::size_t> seen;
  for (const auto* list : {&all.reads, &all.writes}) {
    for (const auto& range : *list) {
      const auto at = reinterpret_cast<std::uintptr_t>(range.data());
      REQUIRE(at >= kFirst);
      seen.insert((at - kFirst) / kApart);
      CHECK(!range.empty());
    }
  }
  CHECK(!all.writes.empty());
  CHECK(seen.size() == place.places());
}

template <std::size_t... I>
void check_all(std::index_sequence<I...>, bool accumulate) {
  (check<std::variant_alternative_t<I, Op>>(accumulate), ...);
}

}  // namespace

TEST_CASE("every tensor and pointer of every operation is accessed") {
  for (const bool accumulate : {false, true}) {
    CAPTURE(accumulate);
    check_all(std::make_index_sequence<std::variant_size_v<Op>>(), accumulate);
  }
}

TEST_CASE("the table of cases runs every kind of operation") {
  std::set<std::size_t> kinds;
  const auto device = cpu_device(1);
  for (const Case& c : cases()) {
    HostMemory memory;
    const Overrides none;
    CheckArena arena(*device, DType::f32, [&](std::int64_t bytes) { return memory(bytes); }, none);
    for (const Op& op : c.build(arena)) kinds.insert(op.index());
  }
  CHECK(kinds.size() == std::variant_size_v<Op>);
}
