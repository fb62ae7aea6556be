#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/device_stream.h"
#include "kernels/dtype.h"
#include "worker/comm/tile_tree.h"

namespace sherd {

// The reduction tree of TileTree over a range of device memory of any size, node by node on a
// stream: the same bits. Nodes live in leaves that may be written to and in digits from earlier, so
// at most one leaf of a range may be only read, and not as the only one to be added to another
// such. Not thread-safe.
class StreamTree {
 public:
  StreamTree(DeviceStream& stream, DType dtype) : stream_(stream), dtype_(dtype) {}
  DType dtype() const { return dtype_; }

  // As TileTree's.
  void Begin(int64_t elements);
  void SetDigit(int level, void* values) { digits_[Index(level)] = {values, values}; }
  void Add(const void* leaf) { Push({leaf, nullptr}); }
  void AddWritable(void* leaf) { Push({leaf, leaf}); }
  const void* digit(int level) const { return digits_[Index(level)].values; }
  // Copies a digit to `to`, unless it is there, and clears it.
  void MoveDigit(int level, void* to);
  // The sum of all digits, into `sum`, which may hold one of the leaves; zeros without leaves. The
  // range ends.
  void SumInto(void* sum);

 private:
  struct Node {
    const void* values = nullptr;
    void* writable = nullptr;
  };
  static size_t Index(int level) { return static_cast<size_t>(level); }
  int64_t bytes() const { return elements_ * SizeOf(dtype_); }
  void Push(Node node);
  Node Take(int level);
  Node Combine(Node older, Node newer);
  void CopyTo(void* to, const void* from);

  DeviceStream& stream_;
  const DType dtype_;
  int64_t elements_ = 0;
  std::array<Node, TileTree::kLevels> digits_;
};

}  // namespace sherd
