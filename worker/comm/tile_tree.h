#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace sherd {

// The reduction tree over one tile of every leaf: a binary counter whose digit k is the sum of 2^k
// consecutive leaves, each node rounded to the type. Tiles are small enough that all nodes stay in
// the cache while leaves stream through. About 200 KiB: for the stack. Not thread-safe.
class TileTree {
 public:
  static constexpr int64_t kTileBytes = 16 << 10;
  // Leaves of one tile are fewer than 2^kLevels.
  static constexpr int kLevels = 24;

  explicit TileTree(DType dtype) : dtype_(dtype) {}
  DType dtype() const { return dtype_; }

  // Begins a tile of `elements` (at most kTileBytes) without leaves. The first node that needs
  // memory is put into `home`, or into memory of the tree's own when it is null.
  void Begin(int64_t elements, void* home = nullptr);
  // Continues with a digit from earlier; its memory is written to. Before the tile's first leaf.
  void SetDigit(int level, void* values);
  // The next leaf, which is only read.
  void Add(const void* leaf) { Push({leaf, nullptr, kNoScratch}); }
  // The next leaf, whose memory may be written to.
  void AddWritable(void* leaf) { Push({leaf, leaf, kNoScratch}); }

  // The values of a digit; null when it is 0.
  const void* digit(int level) const { return digits_[static_cast<size_t>(level)].values; }
  // Copies a digit to `to`, unless it is there, and clears it.
  void MoveDigit(int level, void* to);
  // Sums all digits from the lowest up; null without leaves. The tile ends.
  const void* Sum();

 private:
  static constexpr int kNoScratch = -1;
  // Live nodes of the tree's own: one a digit and one on its way up, for up to 2^12 leaves a tile.
  static constexpr int kScratchTiles = 12;
  struct Node {
    const void* values = nullptr;
    void* writable = nullptr;  // null: only to be read
    int scratch = kNoScratch;
  };

  void Push(Node node);
  Node Take(int level);
  Node Combine(Node older, Node newer);
  void Release(const Node& node);
  Node NewNode();

  const DType dtype_;
  int64_t elements_ = 0;
  void* home_ = nullptr;
  uint32_t free_scratch_ = 0;  // bit i: scratch_[i] is free
  std::array<Node, kLevels> digits_;
  alignas(64) std::array<std::array<std::byte, kTileBytes>, kScratchTiles> scratch_;
};

// Sums one tile of the leaves: of `elements` values that begin `offset` bytes into each of them and
// into `sum`, which may be one of the leaves. Zeros without leaves.
void SumTile(TileTree& tree, absl::Span<const std::byte* const> leaves, std::byte* sum,
             int64_t offset, int64_t elements);

}  // namespace sherd
