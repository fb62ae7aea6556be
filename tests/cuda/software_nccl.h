#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "tests/simt/software_driver.h"
#include "tests/worker/comm/nccl/scripted_nccl.h"

namespace sherd {

// What the stand-in for NCCL asks of software devices.
class NcclOnSoftwareDevices final : public ScriptedDevices {
 public:
  void Enqueue(CUstream_st* stream, std::function<void()> kernel) override {
    simt::SoftwareDriver::EnqueueAside(stream, std::move(kernel));
  }
  void* Allocate(size_t bytes) override {
    void* memory = nullptr;
    const CudaDriver::Error error = simt::SoftwareDriver::Current()->Malloc(&memory, bytes);
    return error == CudaDriver::kSuccess ? memory : nullptr;
  }
  void Free(void* memory) override { simt::SoftwareDriver::Current()->Free(memory); }
};

}  // namespace sherd
