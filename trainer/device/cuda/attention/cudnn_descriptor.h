// A descriptor of cuDNN's backend interface, in which all of it is said, and its errors.
//
// What cuDNN refuses without saying that it is unsupported is Error(failed) with its status and its
// own last message.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::trainer::cuda {

// "CUDNN_STATUS_...: last message", in one line.
std::string cudnn_status_text(cudnnStatus_t status);
// Error(failed): what, and the text above.
void check_cudnn(cudnnStatus_t status, std::string_view what);
// Of the kind that says that something is not supported, not that it failed.
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

  // How many values there are; at most `count` of them are stored.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, void* values) const;
  std::int64_t get_integer(cudnnBackendAttributeName_t name) const;

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptorType_t type_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace tessera::trainer::cuda
