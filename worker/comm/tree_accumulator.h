#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/device_stream.h"
#include "kernels/dtype.h"
#include "kernels/memory.h"
#include "worker/comm/stream_tree.h"

namespace sherd {

// Sums gradient leaves by the binary tree over their index: a binary counter whose digit k holds
// the sum of 2^k consecutive leaves, every node rounded to the gradient type. The sum of leaves
// 0…n−1 has the same bits however the leaves are spread over calls. Not thread-safe.
class TreeAccumulator {
 public:
  // Whose memory the buffers are: the host's, or that of the meter's device, on whose streams
  // leaves are folded and sums finished then.
  enum class Side : uint8_t { kHost, kDevice };

  // Counts its first buffer in `meter` under `pool`, for it is where the sum ends up, and further
  // buffers under Pool::kAccumulators. There are BufferCount(max_leaves, leaves_per_fold) of
  // `elements` values each, allocated here and kept until destruction. At most `max_leaves` leaves
  // between two Resets; every Fold but the last before a Reset brings a multiple of
  // `leaves_per_fold`.
  TreeAccumulator(MemoryMeter& meter, Pool pool, int64_t elements, DType dtype, int64_t max_leaves,
                  int64_t leaves_per_fold = 1, Side side = Side::kHost);
  // As above, but its first buffer is `first` (elements), which outlives it and counts elsewhere.
  TreeAccumulator(MemoryMeter& meter, std::byte* first, int64_t elements, DType dtype,
                  int64_t max_leaves, int64_t leaves_per_fold, Side side = Side::kHost);

  // Only digits that outlive a call have memory of their own: after n leaves these are the ones in
  // the binary form of n. So: the most ones in the binary form of max_leaves and of any multiple of
  // leaves_per_fold below it, and at least 1. With leaves_per_fold = 1 that is
  // max(1, floor(log2(max_leaves + 1))).
  static int BufferCount(int64_t max_leaves, int64_t leaves_per_fold = 1);

  // Forgets the leaves; the buffers stay.
  void Reset();
  // Each leaf holds elements() values; leaves are only read.
  void Fold(absl::Span<const void* const> leaves);
  // The same in ranges, each once and in any order, between BeginFold and EndFold: `leaves` point
  // at the values [first, first + elements) of `count` leaves. `count` is not 0.
  void BeginFold(int64_t count);
  void FoldRange(absl::Span<const void* const> leaves, int64_t first, int64_t elements);
  // The same where leaves and the accumulator are memory of a device, on the tree's stream. The
  // leaf at index `kept` is only read, the others may be written to; -1: there is none such.
  void FoldRange(StreamTree& tree, absl::Span<void* const> leaves, int kept, int64_t first,
                 int64_t elements);
  void EndFold();
  // Adds `sum` (elements), which is that of `leaves` more leaves in any order, on a stream and
  // without a tree. Between two Resets not together with Fold.
  void FoldSum(DeviceStream& stream, const void* sum, int64_t leaves);
  int64_t leaves() const { return leaves_; }
  int64_t elements() const { return elements_; }
  DType dtype() const { return dtype_; }
  // The sum (elements) of all leaves so far, zeros when there are none; partial sums are added from
  // the least significant digit up. Valid, and the caller's to change, until the next Reset; no
  // Fold may follow.
  void* Finish();
  // The same of a device's, enqueued on the stream.
  void* Finish(DeviceStream& stream);

 private:
  static constexpr int kNoBuffer = -1;

  TreeAccumulator(int64_t elements, DType dtype, int64_t max_leaves, int64_t leaves_per_fold);
  void AddBuffer(MemoryMeter& meter, Pool pool, Side side);
  // Where the sum comes about: in the oldest leaves' digit.
  std::byte* PlaceOfSum() const;

  // Carries a range whose first element is `first`: `add(i)` adds leaf i to the tree.
  template <typename Tree, typename AddLeaf>
  void CarryRange(Tree& tree, int64_t first, const AddLeaf& add);
  // The buffers of the digits once there are `leaves` leaves, by level; digits above `top` keep
  // theirs.
  std::vector<int> AssignBuffers(int64_t leaves, int top);
  std::byte* Values(int buffer, int64_t first) const;

  int64_t elements_;
  DType dtype_;
  int64_t max_leaves_;
  int64_t leaves_ = 0;
  // How the fold under way goes from leaves_ leaves to more.
  struct Carry {
    int64_t after = 0;
    int top = 0;                // the highest digit that changes, from 0 to 1
    int64_t carried = 0;        // leaves until digit `top` is 1
    std::vector<int> assigned;  // as digits_, afterwards
    bool fresh = false;         // nothing is carried into digit `top`
  };
  Carry carry_;
  bool finished_ = false;
  void* sum_ = nullptr;
  std::vector<Buffer> owned_;
  std::vector<std::byte*> buffers_;
  std::vector<int> digits_;  // by level: the index of its buffer; kNoBuffer when the digit is 0
};

}  // namespace sherd
