#pragma once

// How the parts of CudaOps enqueue.

#include "absl/status/status.h"
#include "kernels/cuda/cuda_ops.h"

namespace sherd {

template <typename Body>
void CudaOps::Launch(const Body& body) {
  if (device_.failed()) return;
  body(kernels_);
  if (!kernels_.failure().empty()) device_.Remember(absl::InternalError(kernels_.failure()));
}

template <typename T, typename Body>
void CudaOps::Add(T& value, const Body& body) {
  static_assert(sizeof(T) <= sizeof(ExactSum));
  T* const there = added_.as<T>();
  device_.CopyIn(there, &value, sizeof(T));
  Launch([&](CudaKernels& kernels) { body(kernels, there); });
  device_.CopyOut(&value, there, sizeof(T));
}

}  // namespace sherd
