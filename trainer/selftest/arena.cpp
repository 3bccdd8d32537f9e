// SPDX-License-Identifier: Apache-2.0
#include "trainer/selftest/arena.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>

#include "trainer/device/random.h"

namespace tessera::trainer::test {
namespace {

// Fills what lies between rows. A kernel that writes there is found by overrun().
constexpr std::byte kGuard{0xA5};

// Returns normal numbers that depend on the name alone. The seed is FNV-1a of the name. All are
// exact in bf16, so every dtype holds the same.
Values values_of(const std::string& name, std::int64_t count, double scale, double shift) {
  std::uint64_t seed = 14695981039346656037U;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211U;
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double normal = normal_pair(seed, i / 2)[i % 2];
    values[i] = round_to_bf16(normal * scale + shift);
  }
  return values;
}

// Returns the bytes of a plain value.
template <class T>
std::vector<std::byte> bytes_in(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

double round_to_bf16(double x) {
  if (!std::isfinite(x) || x == 0) return x;
  // Eight significant bits, down to those of f32's smallest exponent.
  const int exponent = std::max(std::ilogb(x), -126);
  const double unit = std::ldexp(1.0, exponent - 7);
  const double rounded = std::nearbyint(x / unit) * unit;  // both exact, to even by default
  return std::abs(rounded) < 0x1p128 ? rounded : std::copysign(HUGE_VAL, x);
}

double to_double(const std::byte* p, DType dtype) {
  switch (dtype) {
    case DType::f64: {
      double x;
      std::memcpy(&x, p, sizeof(x));
      return x;
    }
    case DType::f32: {
      float x;
      std::memcpy(&x, p, sizeof(x));
      return static_cast<double>(x);
    }
    case DType::bf16: {
      std::uint16_t half;
      std::memcpy(&half, p, sizeof(half));
      const std::uint32_t bits = std::uint32_t{half} << 16;
      float x;
      std::memcpy(&x, &bits, sizeof(x));
      return static_cast<double>(x);
    }
    case DType::i32: {
      std::int32_t x;
      std::memcpy(&x, p, sizeof(x));
      return x;
    }
  }
  return 0;
}

void from_double(double value, std::byte* p, DType dtype) {
  switch (dtype) {
    case DType::f64:
      std::memcpy(p, &value, sizeof(value));
      break;
    case DType::f32: {
      const auto x = static_cast<float>(value);
      std::memcpy(p, &x, sizeof(x));
      break;
    }
    case DType::bf16: {
      const auto x = static_cast<float>(round_to_bf16(value));
      std::uint32_t bits;
      std::memcpy(&bits, &x, sizeof(bits));
      const auto half = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(p, &half, sizeof(half));
      break;
    }
    case DType::i32: {
      const auto x = static_cast<std::int32_t>(value);
      std::memcpy(p, &x, sizeof(x));
      break;
    }
  }
}

Tensor CheckArena::make(const std::string& name, const Layout& layout, const Values& values) {
  const auto& [dtype, rows, cols, gap, compared] = layout;
  Tensor t{nullptr, dtype, rows, cols, cols + gap};
  const std::int64_t element = bytes_of(dtype);
  // Values are written into guard bytes, which stay between the rows.
  std::vector<std::byte> host(static_cast<std::size_t>(rows * t.ld * element), kGuard);
  const auto given = overrides_.find(name);
  const Values& used = given == overrides_.end() ? values : given->second;
  if (used.size() != static_cast<std::size_t>(rows * cols)) throw std::logic_error(name);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      from_double(used[static_cast<std::size_t>(r * cols + c)],
                  host.data() + (r * t.ld + c) * element, dtype);
    }
  }
  t.data = allocate_(static_cast<std::int64_t>(host.size()));
  upload(t.data, std::move(host));
  entries_.push_back({name, t, compared});
  return t;
}

Tensor CheckArena::filled(const std::string& name, const Layout& layout, double scale,
                          double shift) {
  return make(name, layout, values_of(name, layout.rows * layout.cols, scale, shift));
}

// Elements that the operation does not write stay NaN.
Tensor CheckArena::empty(const std::string& name, const Layout& layout) {
  return make(name, layout,
              Values(static_cast<std::size_t>(layout.rows * layout.cols),
                     std::numeric_limits<double>::quiet_NaN()));
}

Tensor CheckArena::integers(const std::vector<std::int32_t>& values) {
  return make("integers",
              {.dtype = DType::i32, .rows = 1, .cols = static_cast<std::int64_t>(values.size())},
              Values(values.begin(), values.end()));
}

const StepInputs* CheckArena::inputs(const StepInputs& inputs) {
  std::byte* p = allocate_(sizeof(inputs));
  upload(p, bytes_in(inputs));
  return reinterpret_cast<const StepInputs*>(p);
}

StepState* CheckArena::state(const StepState& state) {
  std::byte* p = allocate_(sizeof(state));
  upload(p, bytes_in(state));
  // The first three members of StepState, in its order.
  entries_.push_back({"loss", {p, DType::f32, 1, 1, 1}, true});
  entries_.push_back({"grad_norm", {p + sizeof(float), DType::f32, 1, 1, 1}, true});
  entries_.push_back({"clip", {p + 2 * sizeof(float), DType::f32, 1, 1, 1}, true});
  return reinterpret_cast<StepState*>(p);
}

void CheckArena::upload(void* data, std::vector<std::byte> bytes) {
  made_.push_back({data, std::move(bytes)});
  const std::vector<std::byte>& from = made_.back().bytes;
  device_.copy(Stream::compute, data, from.data(), static_cast<std::int64_t>(from.size()));
}

void CheckArena::refill() {
  for (const Made& each : made_) {
    device_.copy(Stream::compute, each.data, each.bytes.data(),
                 static_cast<std::int64_t>(each.bytes.size()));
  }
}

CheckArena::Entry& CheckArena::find(const std::string& name) {
  for (Entry& entry : entries_) {
    if (entry.name == name) return entry;
  }
  throw std::logic_error("no tensor " + name);
}

std::vector<std::byte> CheckArena::download(const Tensor& t) {
  std::vector<std::byte> host(static_cast<std::size_t>(t.rows * t.ld * bytes_of(t.dtype)));
  device_.copy(Stream::compute, host.data(), t.data, static_cast<std::int64_t>(host.size()));
  device_.record(Stream::compute, 0);
  device_.host_wait(0);
  return host;
}

Values CheckArena::values(const std::string& name) {
  const Tensor& t = find(name).tensor;
  const std::vector<std::byte> host = download(t);
  Values values;
  for (std::int64_t r = 0; r < t.rows; ++r) {
    for (std::int64_t c = 0; c < t.cols; ++c) {
      values.push_back(to_double(host.data() + (r * t.ld + c) * bytes_of(t.dtype), t.dtype));
    }
  }
  return values;
}

std::vector<std::string> CheckArena::compared() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    if (entry.compared) names.push_back(entry.name);
  }
  return names;
}

std::vector<std::byte> CheckArena::bytes() {
  std::vector<std::byte> all;
  for (const Entry& entry : entries_) {
    if (!entry.compared) continue;
    const std::vector<std::byte> host = download(entry.tensor);
    all.insert(all.end(), host.begin(), host.end());
  }
  return all;
}

std::vector<std::string> CheckArena::overrun() {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    const Tensor& t = entry.tensor;
    if (t.ld == t.cols) continue;
    const std::vector<std::byte> host = download(t);
    bool touched = false;
    for (std::size_t i = 0; i < host.size(); ++i) {
      // Elements from `cols` to `ld` of each row are no part of the tensor.
      const auto column = static_cast<std::int64_t>(i) / bytes_of(t.dtype) % t.ld;
      touched = touched || (column >= t.cols && host[i] != kGuard);
    }
    if (touched) names.push_back(entry.name);
  }
  return names;
}

}  // namespace tessera::trainer::test
