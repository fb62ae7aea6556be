#pragma once

// The words of CUDA C++ that kernels of kernels/cuda may use, for g++: included ahead of a .cu file
// (kernels/cuda/simt.h lists them).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/simt/context.h"

#define SHERD_SIMT_HOST

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};

#define threadIdx (::sherd::simt::context->thread)
#define blockIdx (::sherd::simt::context->block)
#define blockDim (::sherd::simt::context->block_size)
#define gridDim (::sherd::simt::context->grid_size)

#define SIMT_SITE std::source_location::current()

#define SIMT_SHARED(type, name, dimensions)       \
  using Simt_##name = type dimensions;            \
  static const char simt_key_##name = 0;          \
  Simt_##name& name = *static_cast<Simt_##name*>( \
      ::sherd::simt::SharedVariable(&simt_key_##name, sizeof(Simt_##name), SIMT_SITE))
#define SIMT_DYNAMIC_SHARED(type, name) \
  type* const name = reinterpret_cast<type*>(::sherd::simt::context->dynamic_shared)

using std::max;
using std::min;

inline void __syncthreads(sherd::simt::Site site = SIMT_SITE) { sherd::simt::SyncThreads(site); }
inline int __syncthreads_or(int value, sherd::simt::Site site = SIMT_SITE) {
  return sherd::simt::SyncThreadsOr(value != 0, site);
}

namespace sherd::simt {

enum Operation : int { kSyncWarp, kShuffleXor, kShuffle, kBallot, kMma, kLoadMatrix };

template <typename T>
T Shuffle(unsigned mask, Operation operation, T value, unsigned from, Site site) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  const Exchange& exchange = JoinWarp(mask, operation, &word, 1, false, site);
  // Of a lane that takes no part the value is not defined: all ones.
  word = (exchange.arrived >> from & 1) != 0 ? exchange.values[from][0] : ~uint64_t{0};
  FinishReading(exchange);
  std::memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace sherd::simt

inline void __syncwarp(unsigned mask = ~0u, sherd::simt::Site site = SIMT_SITE) {
  sherd::simt::FinishReading(
      sherd::simt::JoinWarp(mask, sherd::simt::kSyncWarp, nullptr, 0, true, site));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, sherd::simt::Site site = SIMT_SITE) {
  const unsigned from = sherd::simt::Lane() ^ static_cast<unsigned>(lanes);
  return sherd::simt::Shuffle(mask, sherd::simt::kShuffleXor, value, from % 32, site);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, sherd::simt::Site site = SIMT_SITE) {
  return sherd::simt::Shuffle(mask, sherd::simt::kShuffle, value, static_cast<unsigned>(lane) % 32,
                              site);
}
inline unsigned __ballot_sync(unsigned mask, int value, sherd::simt::Site site = SIMT_SITE) {
  const uint64_t word = value != 0 ? 1 : 0;
  const sherd::simt::Exchange& exchange =
      sherd::simt::JoinWarp(mask, sherd::simt::kBallot, &word, 1, false, site);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((exchange.arrived >> lane & 1) != 0 && exchange.values[lane][0] != 0) votes |= 1u << lane;
  }
  sherd::simt::FinishReading(exchange);
  return votes;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// ---- launches

// As the runtime's: 0 is success; 719 is that of a launch that failed (cudaErrorLaunchFailure), 700
// that of an access to what is not the device's (cudaErrorIllegalAddress).
using cudaError_t = int;
// A stream of the software device (software_driver.h); null: launches run at once, on the calling
// thread's executor.
struct CUstream_st {
  virtual ~CUstream_st() = default;
  // Has `launch` run behind what was enqueued before; it tells whether all went well. As an answer,
  // what earlier launches have come to; 700 when one of the kernel's pointers that are not null is
  // to no memory that a device reaches.
  virtual cudaError_t Launch(std::function<bool()> launch,
                             const std::vector<const void*>& pointers) = 0;
};
using cudaStream_t = CUstream_st*;
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == 700 ? "a pointer is to memory that is not the device's"
                      : "a rule of CUDA was broken";
}

namespace sherd::simt {

// Of a structure: how many members it has, and whether one of them is a pointer.
struct OfAnyType {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
struct OfNoPointer {
  template <typename T>
  requires(!std::is_pointer_v<T>) operator T() const;  // NOLINT(google-explicit-constructor)
};
template <typename T, typename Member, size_t... kIndices>
constexpr bool MadeOf(std::index_sequence<kIndices...>) {
  return requires { T{(static_cast<void>(kIndices), Member())...}; };
}
template <typename T, size_t kMost = 16>
constexpr size_t MemberCount() {
  if constexpr (MadeOf<T, OfAnyType>(std::make_index_sequence<kMost>())) {
    return kMost;
  } else {
    return MemberCount<T, kMost - 1>();
  }
}

// Adds the pointers of a kernel's argument.
template <typename T>
void AddPointers(const T& argument, std::vector<const void*>& pointers) {
  if constexpr (std::is_pointer_v<T>) {
    pointers.push_back(argument);
  } else if constexpr (requires { argument.master, argument.m, argument.v; }) {
    pointers.insert(pointers.end(), {argument.master, argument.m, argument.v});
  } else if constexpr (std::is_class_v<T>) {
    static_assert(MadeOf<T, OfNoPointer>(std::make_index_sequence<MemberCount<T>()>()),
                  "say here what pointers it holds");
  }
}

}  // namespace sherd::simt

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

// What a launch runs, as the executor takes it.
template <typename... Parameters>
struct KernelCall {
  Kernel<Parameters...> kernel;
  dim3 grid, block;
  size_t shared_bytes;
  std::tuple<std::decay_t<Parameters>...> arguments;

  bool operator()() {
    const auto run = [](void* erased) {
      KernelCall& known = *static_cast<KernelCall*>(erased);
      std::apply(known.kernel.function, known.arguments);
    };
    return simt::RunGrid({kernel.name, grid, block, shared_bytes, run, this});
  }
};

template <typename... Parameters, typename... Arguments>
cudaError_t launch(const Kernel<Parameters...>& kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, Arguments&&... arguments) {
  KernelCall<Parameters...> call{
      kernel, grid, block, shared_bytes, {static_cast<Parameters>(arguments)...}};
  if (stream != nullptr) {
    std::vector<const void*> pointers;
    std::apply([&](const auto&... each) { (simt::AddPointers(each, pointers), ...); },
               call.arguments);
    return stream->Launch(call, pointers);
  }
  return call() ? 0 : 719;
}

}  // namespace sherd

#include "tests/simt/tensor_core.h"
