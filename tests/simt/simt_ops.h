#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "tests/simt/executor.h"

namespace sherd::simt {

// Scratch memory full of NaN, no larger than was asked for, kept until Clear: what a kernel reads
// without having written, or beyond the end, shows.
class NanScratch final : public DeviceScratch {
 public:
  void* Reserve(int64_t bytes) override;
  void Clear() { kept_.clear(); }

 private:
  struct Free {
    void operator()(void* room) const;
  };
  std::vector<std::unique_ptr<void, Free>> kept_;
};

// Memory that an operation writes. `overwritten`: what is there before does not matter, and is NaN.
struct Output {
  void* data;
  size_t bytes;
  bool overwritten;
};

// Runs kernels of kernels/cuda on the executor in several orders (SHERD_SIMT_ORDERS, a list of
// "forward", "reverse" and "random"; all of them when it is not set), each from the same memory,
// and adds a test failure when a launch breaks a rule, when a sanitizer reports something, or when
// the outputs' bits differ between orders.
class Orders {
 public:
  Orders();
  void Run(const std::vector<Output>& outputs, const std::function<void(CudaKernels&)>& body);

 private:
  std::vector<Order> orders_;
  uint32_t seed_ = 0;
  Executor executor_;
  NanScratch scratch_;
};

// Ops on kernels/cuda, run like that. Products of matrices are cuBLASLt's: asking for one is a bug.
std::unique_ptr<Ops> MakeSimtOps();

}  // namespace sherd::simt
