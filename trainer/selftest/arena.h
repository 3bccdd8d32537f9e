// The tensors of one test case: made by name, filled with values that depend on the name only and
// are exact in bf16, so that an f64, f32 and bf16 instance of a case compute the same thing.
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
  using Allocate = std::function<std::byte*(std::int64_t bytes)>;

  // dtype: of activations. allocate: memory of the device, 256-byte aligned.
  Arena(Device& device, DType dtype, Allocate allocate, const Overrides& overrides)
      : device_(device), dtype_(dtype), allocate_(std::move(allocate)), overrides_(overrides) {}

  DType dtype() const { return dtype_; }
  DType compute_dtype() const { return dtype_ == DType::f64 ? DType::f64 : DType::f32; }

  // Normal numbers times `scale` plus `shift`. gap: unused elements between rows.
  Tensor in(const std::string& name, std::int64_t rows, std::int64_t cols, double scale = 1,
            double shift = 0, std::int64_t gap = 0);
  // As `in`, but in the dtype of statistics and gradients, and compared.
  Tensor accumulator(const std::string& name, std::int64_t rows, std::int64_t cols,
                     double scale = 1, double shift = 0);
  // Filled with NaN, as are statistics (in the compute dtype) and scratch (never compared).
  Tensor out(const std::string& name, std::int64_t rows, std::int64_t cols, std::int64_t gap = 0);
  Tensor statistics(const std::string& name, std::int64_t rows, std::int64_t cols);
  // As `in` and `out`, but in the compute dtype: a residual stream wider than its branches.
  Tensor wide_in(const std::string& name, std::int64_t rows, std::int64_t cols, double scale = 1,
                 double shift = 0, std::int64_t gap = 0);
  Tensor wide_out(const std::string& name, std::int64_t rows, std::int64_t cols,
                  std::int64_t gap = 0);
  Tensor scratch(std::int64_t elements);
  Tensor integers(const std::vector<std::int32_t>& values);
  // The same memory under another name, or as an output: in-place operations.
  void compare(const std::string& name) { find(name).compared = true; }

  const StepInputs* inputs(const StepInputs& inputs);
  StepState* state(const StepState& state);

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
  Tensor make(const std::string& name, DType dtype, std::int64_t rows, std::int64_t cols,
              std::int64_t gap, const Values& values, bool compared);
  void upload(void* data, std::vector<std::byte> bytes);
  Entry& find(const std::string& name);
  std::vector<std::byte> download(const Tensor& t);

  Device& device_;
  DType dtype_;
  Allocate allocate_;
  const Overrides& overrides_;
  std::vector<Entry> entries_;
  std::vector<Made> made_;
};

}  // namespace tessera::trainer::test
