// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/attention/cudnn_descriptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "lib/base/error.h"
#include "trainer/device/cuda/libraries/libraries.h"

namespace tessera::trainer::cuda {

std::string cudnn_status_text(cudnnStatus_t status) {
  std::array<char, 2048> message{};
  cudnn().cudnnGetLastErrorString(message.data(), message.size());
  std::string text = cudnn().cudnnGetErrorString(status);
  if (message[0] != '\0') text += fmt::format(": {}", message.data());
  std::ranges::replace_if(text, [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return text;
}

void check_cudnn(cudnnStatus_t status, std::string_view what) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw Error(ExitCode::failed, fmt::format("cuDNN {}", cudnn().version),
                fmt::format("{}: {}", what, cudnn_status_text(status)));
  }
}

bool is_unsupported(cudnnStatus_t status) {
  return CUDNN_STATUS_CATEGORY(static_cast<int>(status)) == CUDNN_STATUS_NOT_SUPPORTED;
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) : type_(type) {
  check_cudnn(cudnn().cudnnBackendCreateDescriptor(type, &raw_),
              fmt::format("a descriptor of type {} cannot be made", static_cast<int>(type)));
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) cudnn().cudnnBackendDestroyDescriptor(raw_);
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : type_(other.type_), raw_(std::exchange(other.raw_, nullptr)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(type_, other.type_);
  std::swap(raw_, other.raw_);
  return *this;
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     std::int64_t count, const void* values) {
  check_cudnn(cudnn().cudnnBackendSetAttribute(raw_, name, type, count, values),
              fmt::format("attribute {} of a descriptor of type {} cannot be set",
                          static_cast<int>(name), static_cast<int>(type_)));
}

void Descriptor::set(cudnnBackendAttributeName_t name, std::int64_t value) {
  set(name, CUDNN_TYPE_INT64, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, bool value) {
  set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
  set(name, CUDNN_TYPE_HANDLE, 1, static_cast<const void*>(&value));
}

void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, static_cast<const void*>(&value.raw_));
}

cudnnStatus_t Descriptor::try_finalize() {
  return cudnn().cudnnBackendFinalize(raw_);
}

void Descriptor::finalize() {
  check_cudnn(try_finalize(),
              fmt::format("a descriptor of type {} is refused", static_cast<int>(type_)));
}

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             std::int64_t count, void* values) const {
  std::int64_t found = 0;
  check_cudnn(cudnn().cudnnBackendGetAttribute(raw_, name, type, count, &found, values),
              fmt::format("attribute {} of a descriptor of type {} cannot be read",
                          static_cast<int>(name), static_cast<int>(type_)));
  return found;
}

std::int64_t Descriptor::get_integer(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  get(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

}  // namespace tessera::trainer::cuda
