// SPDX-License-Identifier: Apache-2.0
// A descriptor of cuDNN's backend interface, through which everything is said to cuDNN, and its
// errors.
//
// If cuDNN refuses something without calling it unsupported, that is Error(failed) with cuDNN's
// status and its last message.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::trainer::cuda {

// Returns "CUDNN_STATUS_...: last message", in one line.
std::string cudnn_status_text(cudnnStatus_t status);
// Throws Error(failed) of `what` with that text, unless success.
void check_cudnn(cudnnStatus_t status, std::string_view what);
// Returns whether the status says "not supported" rather than "failed".
bool is_unsupported(cudnnStatus_t status);

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, std::int64_t value);
  void set(cudnnBackendAttributeName_t name, bool value);
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  void set(cudnnBackendAttributeName_t name, cudnnHandle_t value);
  void set(cudnnBackendAttributeName_t name, const Descriptor& value);

  cudnnStatus_t try_finalize();
  void finalize();

  // Returns how many values the attribute has; stores at most `count` of them.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, void* values) const;
  std::int64_t get_integer(cudnnBackendAttributeName_t name) const;

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptorType_t type_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace tessera::trainer::cuda
