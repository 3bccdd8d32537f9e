// SPDX-License-Identifier: Apache-2.0
// The tensors of a case of the table (cases.h): made by name, and where they lie. CheckArena checks
// what was computed; BenchArena (trainer/bench) is for measuring alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trainer/device/device.h"

namespace tessera::trainer::test {

using Values = std::vector<double>;               // row by row, without what lies between rows
using Overrides = std::map<std::string, Values>;  // inputs that are to be other than by name

// x as bf16, rounded once to nearest even.
double round_to_bf16(double x);

double to_double(const std::byte* p, DType dtype);
void from_double(double value, std::byte* p, DType dtype);  // rounds as the device should

class Arena {
 public:
  // dtype: of activations.
  explicit Arena(DType dtype) : dtype_(dtype) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  virtual ~Arena() = default;

  DType dtype() const { return dtype_; }
  DType compute_dtype() const { return dtype_ == DType::f64 ? DType::f64 : DType::f32; }

  // Normal numbers times `scale` plus `shift`. gap: unused elements between rows.
  Tensor in(const std::string& name, std::int64_t rows, std::int64_t cols, double scale = 1,
            double shift = 0, std::int64_t gap = 0) {
    return filled(name, {.dtype = dtype_, .rows = rows, .cols = cols, .gap = gap}, scale, shift);
  }
  // As `in`, but in the dtype of statistics and gradients, and compared.
  Tensor accumulator(const std::string& name, std::int64_t rows, std::int64_t cols,
                     double scale = 1, double shift = 0) {
    return filled(name, {.dtype = compute_dtype(), .rows = rows, .cols = cols, .compared = true},
                  scale, shift);
  }
  // Not filled, as are statistics (in the compute dtype) and scratch (never compared).
  Tensor out(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t gap = 0) {
    return empty(name, {.dtype = dtype_, .rows = rows, .cols = cols, .gap = gap, .compared = true});
  }
  Tensor statistics(const std::string& name, std::int64_t rows, std::int64_t cols) {
    return wide_out(name, rows, cols);
  }
  // As `in` and `out`, but in the compute dtype: a residual stream wider than its branches.
  Tensor wide_in(const std::string& name, std::int64_t rows, std::int64_t cols, double scale = 1,
                 double shift = 0, std::int64_t gap = 0) {
    return filled(name, {.dtype = compute_dtype(), .rows = rows, .cols = cols, .gap = gap}, scale,
                  shift);
  }
  Tensor wide_out(const std::string& name, std::int64_t rows, std::int64_t cols,
                  std::int64_t gap = 0) {
    return empty(
        name, {.dtype = compute_dtype(), .rows = rows, .cols = cols, .gap = gap, .compared = true});
  }
  Tensor scratch(std::int64_t elements) {
    return empty("scratch", {.dtype = compute_dtype(), .rows = 1, .cols = elements});
  }
  virtual Tensor integers(const std::vector<std::int32_t>& values) = 0;
  // The same memory under another name, or as an output: in-place operations.
  virtual void compare(const std::string& name) = 0;

  virtual const StepInputs* inputs(const StepInputs& inputs) = 0;
  virtual StepState* state(const StepState& state) = 0;

 protected:
  struct Layout {
    DType dtype = DType::f32;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t gap = 0;
    bool compared = false;
  };

 private:
  virtual Tensor filled(const std::string& name, const Layout& layout, double scale,
                        double shift) = 0;
  virtual Tensor empty(const std::string& name, const Layout& layout) = 0;

  DType dtype_;
};

// Values depend on the tensor's name only and are exact in bf16, so that an f64, f32 and bf16
// instance of a case compute the same thing. What is not filled is NaN, what lies between rows is
// known bytes.
class CheckArena final : public Arena {
 public:
  using Allocate = std::function<std::byte*(std::int64_t bytes)>;

  // allocate: memory of the device, 256-byte aligned.
  CheckArena(Device& device, DType dtype, Allocate allocate, const Overrides& overrides)
      : Arena(dtype), device_(device), allocate_(std::move(allocate)), overrides_(overrides) {}

  Tensor integers(const std::vector<std::int32_t>& values) override;
  void compare(const std::string& name) override { find(name).compared = true; }
  const StepInputs* inputs(const StepInputs& inputs) override;
  StepState* state(const StepState& state) override;

  // All as it was made: after prepare, which may have written to what operations write to.
  void refill();

  // After the run. Values of a tensor; names of what is compared; the bytes of all that is
  // compared.
  Values values(const std::string& name);
  std::vector<std::string> compared() const;
  std::vector<std::byte> bytes();
  // Names of tensors whose bytes between or after rows were written to.
  std::vector<std::string> overrun();

 private:
  struct Entry {
    std::string name;
    Tensor tensor;
    bool compared = false;
  };
  struct Made {
    void* data = nullptr;
    std::vector<std::byte> bytes;
  };
  Tensor filled(const std::string& name, const Layout& layout, double scale, double shift) override;
  Tensor empty(const std::string& name, const Layout& layout) override;
  Tensor make(const std::string& name, const Layout& layout, const Values& values);
  void upload(void* data, std::vector<std::byte> bytes);
  Entry& find(const std::string& name);
  std::vector<std::byte> download(const Tensor& t);

  Device& device_;
  Allocate allocate_;
  const Overrides& overrides_;
  std::vector<Entry> entries_;
  std::vector<Made> made_;
};

}  // namespace tessera::trainer::test
