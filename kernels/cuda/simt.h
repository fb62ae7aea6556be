#pragma once

// The words that kernels are written in. Under nvcc they are CUDA C++. The tests compile the same
// .cu files as C++ and run them on the host (tests/simt, docs/kernels.md): device.h there gives
// these words, and only these, a meaning before a kernel's file begins:
//
//   __global__ __device__ __forceinline__ __launch_bounds__, threadIdx blockIdx blockDim gridDim
//   SIMT_SHARED(type, name, [n])         a __shared__ array
//   SIMT_DYNAMIC_SHARED(type, name)      what the launch gives, as a pointer
//   __syncthreads __syncthreads_or __syncwarp __shfl_sync __shfl_xor_sync __ballot_sync __popc
//   atomicAdd of unsigned long long      integers alone: the order of sums of floats is fixed
//   __uint_as_float __float_as_uint, float4 uint4 uint2 dim3, min max and what <cmath> has
//   ptx.cuh                              asynchronous copies, matrices for tensor cores
//   launch(SIMT_KERNEL(kernel<…>), grid, block, shared bytes, stream, arguments…)
//
// Products and sums are not contracted (nvcc --fmad=false): fmaf says where they are, so that an
// element has the same bits on every path.

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#include <cstddef>

#define SIMT_SHARED(type, name, dimensions) __shared__ type name dimensions
#define SIMT_DYNAMIC_SHARED(type, name)                                  \
  extern __shared__ __align__(128) unsigned char sherd_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(sherd_dynamic_shared)

namespace sherd {

template <typename... Parameters>
struct Kernel {
  const char* name;
  void (*function)(Parameters...);
};
template <typename... Parameters>
Kernel(const char*, void (*)(Parameters...)) -> Kernel<Parameters...>;
#define SIMT_KERNEL(...) \
  ::sherd::Kernel { #__VA_ARGS__, &__VA_ARGS__ }

template <typename... Parameters, typename... Arguments>
cudaError_t launch(const Kernel<Parameters...>& kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, Arguments&&... arguments) {
  constexpr size_t kWithoutAsking = 48 << 10;
  if (shared_bytes > kWithoutAsking) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kernel.function<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  return cudaGetLastError();
}

}  // namespace sherd

#elif !defined(SHERD_SIMT_HOST)
#error "a .cu file is compiled by nvcc, or by tests/simt with device.h in front"
#endif
