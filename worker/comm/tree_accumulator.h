#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "kernels/memory.h"

namespace sherd {

// Sums gradient leaves by the binary tree over their index: a binary counter whose digit k holds
// the sum of 2^k consecutive leaves, every node rounded to the gradient type. The sum of leaves
// 0…n−1 has the same bits however the leaves are spread over calls. Not thread-safe.
class TreeAccumulator {
 public:
  // Counts its buffers in `meter` under `pool`. At most `max_leaves` leaves between two Resets.
  TreeAccumulator(MemoryMeter& meter, Pool pool, int64_t elements, DType dtype, int64_t max_leaves);

  void Reset();
  // Each leaf holds elements() values; leaves are only read.
  void Fold(absl::Span<const void* const> leaves);
  int64_t leaves() const { return leaves_; }
  int64_t elements() const { return elements_; }
  DType dtype() const { return dtype_; }
  // The sum (elements) of all leaves so far, zeros when there are none; partial sums are added from
  // the least significant digit up. Valid until the next Reset; no Fold may follow.
  const void* Finish();

 private:
  int64_t elements_;
  DType dtype_;
  int64_t leaves_ = 0;
  std::vector<Buffer> digits_;
};

}  // namespace sherd
