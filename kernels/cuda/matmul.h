#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/driver.h"

namespace sherd {

// Products by cuBLASLt on the current device. An algorithm is what the library's heuristic answers
// for a shape and types, asked once; of alignment it is told kProductAlignment, never what pointers
// happen to have. Reductions over parts of the inner dimension go through the workspace in fp32, in
// a fixed order. Thread-safe.
class Matmul {
 public:
  // Recommended for compute capability 9.0; elsewhere less would do.
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  Matmul() = default;
  ~Matmul();
  Matmul(const Matmul&) = delete;

  // Success, or what failed in `why`.
  cublasStatus_t Open(std::string* why);
  // Whether there is an algorithm; true when that cannot be found out, which Multiply will tell.
  bool Computes(const Product& product) ABSL_LOCKS_EXCLUDED(mutex_);
  cublasStatus_t Multiply(const Product& product, cudaStream_t stream, std::string* why)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Problem;

  // NOT_SUPPORTED: there is none.
  cublasStatus_t Choose(const Product& product, cublasLtMatmulAlgo_t* algorithm, std::string* why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks the library; null: there is none.
  cublasStatus_t Ask(const Product& product, std::optional<cublasLtMatmulAlgo_t>* algorithm,
                     std::string* why);

  cublasLtHandle_t handle_ = nullptr;
  absl::Mutex mutex_;
  std::map<ProductKey, std::optional<cublasLtMatmulAlgo_t>> chosen_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sherd
