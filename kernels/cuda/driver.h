#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cuda/product.h"

struct CUstream_st;
struct CUevent_st;

namespace sherd {

// Everything that the host side asks of CUDA, for one device: a table that the CUDA runtime with
// cuBLASLt fills in (runtime_driver.h), and the software device of the tests. Names and meanings
// are the runtime's; an answer is a cudaError_t, 0 for success. From any thread.
class CudaDriver {
 public:
  using Error = int;
  static constexpr Error kSuccess = 0;
  static constexpr Error kMemoryAllocation = 2;
  static constexpr Error kNotReady = 600;
  // No error of the runtime, but of the library of products: nothing was enqueued.
  static constexpr Error kNoProduct = -1;

  virtual ~CudaDriver() = default;
  virtual std::string Text(Error error) = 0;

  virtual Error Malloc(void** memory, size_t bytes) = 0;
  virtual Error Free(void* memory) = 0;
  // Page-locked.
  virtual Error MallocHost(void** memory, size_t bytes) = 0;
  virtual Error FreeHost(void* memory) = 0;
  // Page-locks memory that is there.
  virtual Error HostRegister(void* memory, size_t bytes) = 0;
  virtual Error HostUnregister(void* memory) = 0;
  virtual Error MemGetInfo(size_t* free, size_t* total) = 0;
  // Makes the device that of the calling thread, for libraries that ask which it is.
  virtual Error SetDevice() = 0;

  // High priority: kernels of it go first where both could run.
  virtual Error StreamCreate(CUstream_st** stream, bool high_priority) = 0;
  virtual Error StreamDestroy(CUstream_st* stream) = 0;
  // What is enqueued on `stream` from now on waits for what was recorded of `event`.
  virtual Error StreamWaitEvent(CUstream_st* stream, CUevent_st* event) = 0;

  virtual Error EventCreate(CUevent_st** event) = 0;
  // An event that knows its time, and the time from one such to another, which both have passed.
  virtual Error TimedEventCreate(CUevent_st** event) = 0;
  virtual Error EventElapsedTime(float* milliseconds, CUevent_st* begin, CUevent_st* end) = 0;
  virtual Error EventDestroy(CUevent_st* event) = 0;
  virtual Error EventRecord(CUevent_st* event, CUstream_st* stream) = 0;
  // kNotReady: what was enqueued before it is under way. That is how the host waits (wait.h): no
  // call that does so within the driver is here.
  virtual Error EventQuery(CUevent_st* event) = 0;

  // In either direction or within the device; host memory is page-locked.
  virtual Error MemcpyAsync(void* to, const void* from, size_t bytes, CUstream_st* stream) = 0;
  virtual Error MemsetAsync(void* memory, int byte, size_t bytes, CUstream_st* stream) = 0;

  // Whether the library has an algorithm for the product, by its key alone. What else is wrong with
  // it, Multiply tells.
  virtual bool Computes(const Product& product) = 0;
  // Enqueues the product. Products with equal keys (KeyOf) are computed by the same algorithm, and
  // have equal bits of equal operands. With kNoProduct `why` gets the library's call, and its
  // answer.
  virtual Error Multiply(const Product& product, CUstream_st* stream, std::string* why) = 0;
  // Of the library, to work in.
  virtual int64_t workspace_bytes() const = 0;

  // "NVIDIA H200".
  virtual std::string model() const = 0;
  // "GPU-8a5e…", as nvidia-smi tells it; "": there is none.
  virtual std::string uuid() const = 0;
  // "0000:65:00.0".
  virtual std::string pci_address() const = 0;
  // What bits depend on: compute capability, versions of the runtime and of cuBLASLt.
  virtual std::string numerics_fingerprint() const = 0;
};

}  // namespace sherd
