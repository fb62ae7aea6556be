#pragma once

// What the host sides of all kernels share.

#include <cstdint>
#include <string>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/simt.h"

namespace sherd {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename Kernel, typename... Arguments>
void CudaKernels::Run(const Kernel& kernel, int64_t blocks, int threads, size_t shared_bytes,
                      Arguments... arguments) {
  if (blocks == 0 || !failure_.empty()) return;
  constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;
  if (blocks > kMostBlocks) {
    failure_ = std::string(kernel.name) + ": more than 2^31 - 1 blocks";
    return;
  }
  const cudaError_t error =
      launch(kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)),
             shared_bytes, stream_, arguments...);
  if (error != cudaError_t{}) {
    failure_ = std::string(kernel.name) + ": " + cudaGetErrorString(error);
  }
}

template <typename T>
T* CudaKernels::Scratch(int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  void* const room = scratch_.Reserve(bytes == 0 ? 1 : bytes);
  if (room == nullptr && failure_.empty()) {
    failure_ = "no scratch memory of " + std::to_string(bytes) + " bytes";
  }
  return static_cast<T*>(room);
}

// body(T()) where T is the type of that name.
template <typename Body>
void ForType(DType dtype, const Body& body) {
  if (dtype == DType::kF32) {
    body(float());
  } else {
    body(BF16());
  }
}

// Of element-wise kernels: one pack a thread.
inline constexpr int kElementThreads = 256;
inline int64_t BlocksOfPacks(int64_t elements, int width) {
  return CeilDiv(elements, static_cast<int64_t>(kElementThreads) * width);
}

// Whether all of them may be accessed 16 bytes at a time.
template <typename... Pointers>
bool AllAligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace sherd
