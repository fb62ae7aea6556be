#include "worker/comm/tile_tree.h"

#include <bit>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "kernels/cpu/fold.h"

namespace sherd {

void TileTree::Begin(int64_t elements, void* home) {
  SHERD_CHECK(elements * SizeOf(dtype_) <= kTileBytes);
  elements_ = elements;
  home_ = home;
  free_scratch_ = (1u << kScratchTiles) - 1;
  digits_.fill(Node());
}

void TileTree::SetDigit(int level, void* values) {
  digits_[static_cast<size_t>(level)] = {values, values, kNoScratch};
}

void TileTree::MoveDigit(int level, void* to) {
  const Node node = Take(level);
  if (node.values != to) {
    std::memcpy(to, node.values, static_cast<size_t>(elements_ * SizeOf(dtype_)));
  }
  Release(node);
}

const void* TileTree::Sum() {
  Node sum;
  for (int level = 0; level < kLevels; ++level) {
    if (digit(level) == nullptr) continue;
    sum = sum.values == nullptr ? Take(level) : Combine(Take(level), sum);
  }
  return sum.values;
}

void TileTree::Push(Node node) {
  int level = 0;
  for (; digit(level) != nullptr; ++level) {
    node = Combine(Take(level), node);
    SHERD_CHECK(level + 1 < kLevels);
  }
  digits_[static_cast<size_t>(level)] = node;
}

TileTree::Node TileTree::Take(int level) {
  return std::exchange(digits_[static_cast<size_t>(level)], Node());
}

// Adds in place where a node may be written, the older one first: then the sum of all ends in the
// memory of the oldest. IEEE addition commutes, so the order of the operands changes no bit.
TileTree::Node TileTree::Combine(Node older, Node newer) {
  if (older.writable == nullptr && newer.writable != nullptr) std::swap(older, newer);
  if (older.writable == nullptr) {
    const Node copy = NewNode();
    std::memcpy(copy.writable, older.values, static_cast<size_t>(elements_ * SizeOf(dtype_)));
    older = copy;
  }
  AddRoundedSerial(older.writable, newer.values, dtype_, elements_);
  Release(newer);
  return older;
}

void TileTree::Release(const Node& node) {
  if (node.scratch != kNoScratch) free_scratch_ |= 1u << node.scratch;
}

TileTree::Node TileTree::NewNode() {
  if (void* home = std::exchange(home_, nullptr); home != nullptr) {
    return {home, home, kNoScratch};
  }
  SHERD_CHECK(free_scratch_ != 0);
  const int index = std::countr_zero(free_scratch_);
  free_scratch_ &= ~(1u << index);
  std::byte* tile = scratch_[static_cast<size_t>(index)].data();
  return {tile, tile, index};
}

void SumTile(TileTree& tree, absl::Span<const std::byte* const> leaves, std::byte* sum,
             int64_t offset, int64_t elements) {
  std::byte* const own_tile = sum + offset;
  tree.Begin(elements);
  for (const std::byte* leaf : leaves) {
    // A leaf that gives way to the sum may serve as memory of a node.
    leaf == sum ? tree.AddWritable(own_tile) : tree.Add(leaf + offset);
  }
  const auto bytes = static_cast<size_t>(elements * SizeOf(tree.dtype()));
  const void* values = tree.Sum();
  if (values == nullptr) {
    std::memset(own_tile, 0, bytes);
  } else if (values != own_tile) {
    std::memcpy(own_tile, values, bytes);
  }
}

}  // namespace sherd
