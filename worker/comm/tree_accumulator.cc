#include "worker/comm/tree_accumulator.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "worker/comm/tile_tree.h"

namespace sherd {
namespace {

bool HasDigit(int64_t leaves, int level) { return ((leaves >> level) & 1) != 0; }

// Calls `tile(first, elements)` for consecutive ranges that cover [0, elements).
template <typename Tile>
void ForEachTile(int64_t elements, DType dtype, const Tile& tile) {
  const int64_t step = TileTree::kTileBytes / SizeOf(dtype);
  for (int64_t first = 0; first < elements; first += step) {
    tile(first, std::min(step, elements - first));
  }
}

}  // namespace

int TreeAccumulator::BufferCount(int64_t max_leaves, int64_t leaves_per_fold) {
  int most = std::max(1, std::popcount(static_cast<uint64_t>(max_leaves)));
  for (int64_t leaves = 0; leaves < max_leaves; leaves += leaves_per_fold) {
    most = std::max(most, std::popcount(static_cast<uint64_t>(leaves)));
  }
  return most;
}

TreeAccumulator::TreeAccumulator(int64_t elements, DType dtype, int64_t max_leaves,
                                 int64_t leaves_per_fold)
    : elements_(elements),
      dtype_(dtype),
      max_leaves_(max_leaves),
      digits_(TileTree::kLevels, kNoBuffer) {
  SHERD_CHECK(elements >= 0 && leaves_per_fold >= 1);
  SHERD_CHECK(max_leaves >= 0 && max_leaves < int64_t{1} << TileTree::kLevels);
}

TreeAccumulator::TreeAccumulator(MemoryMeter& meter, Pool pool, int64_t elements, DType dtype,
                                 int64_t max_leaves, int64_t leaves_per_fold, Side side)
    : TreeAccumulator(elements, dtype, max_leaves, leaves_per_fold) {
  AddBuffer(meter, pool, side);
  for (int more = BufferCount(max_leaves, leaves_per_fold) - 1; more > 0; --more) {
    AddBuffer(meter, Pool::kAccumulators, side);
  }
}

TreeAccumulator::TreeAccumulator(MemoryMeter& meter, std::byte* first, int64_t elements,
                                 DType dtype, int64_t max_leaves, int64_t leaves_per_fold,
                                 Side side)
    : TreeAccumulator(elements, dtype, max_leaves, leaves_per_fold) {
  buffers_.push_back(first);
  for (int more = BufferCount(max_leaves, leaves_per_fold) - 1; more > 0; --more) {
    AddBuffer(meter, Pool::kAccumulators, side);
  }
}

void TreeAccumulator::AddBuffer(MemoryMeter& meter, Pool pool, Side side) {
  const int64_t bytes = elements_ * SizeOf(dtype_);
  owned_.push_back(side == Side::kHost ? Buffer::OnHost(meter, pool, bytes)
                                       : Buffer(meter, pool, bytes));
  buffers_.push_back(owned_.back().data());
}

void TreeAccumulator::Reset() {
  leaves_ = 0;
  finished_ = false;
  sum_ = nullptr;
  std::fill(digits_.begin(), digits_.end(), kNoBuffer);
}

std::byte* TreeAccumulator::Values(int buffer, int64_t first) const {
  return buffers_[static_cast<size_t>(buffer)] + first * SizeOf(dtype_);
}

// Counting from n to m > n, `top` is the highest digit in which they differ: 0 in n, 1 in m. All
// lower digits of n are carried into it, then the lower digits of m are made anew. Digit `top`
// takes over the buffer of the highest carried digit, the oldest leaves', where its sum comes
// about.
std::vector<int> TreeAccumulator::AssignBuffers(int64_t leaves, int top) {
  std::vector<int> assigned = digits_;
  std::vector<int> available;  // the best for `top` last
  for (int buffer = 0; buffer < static_cast<int>(buffers_.size()); ++buffer) {
    const bool taken = std::count(digits_.begin(), digits_.end(), buffer) > 0;
    if (!taken) available.push_back(buffer);
  }
  for (int level = 0; level < top; ++level) {
    const int buffer = digits_[static_cast<size_t>(level)];
    if (buffer != kNoBuffer) available.push_back(buffer);
    assigned[static_cast<size_t>(level)] = kNoBuffer;
  }
  for (int level = top; level >= 0; --level) {
    if (!HasDigit(leaves, level)) continue;
    SHERD_CHECK(!available.empty());  // broken promise of leaves_per_fold
    assigned[static_cast<size_t>(level)] = available.back();
    available.pop_back();
  }
  return assigned;
}

void TreeAccumulator::Fold(absl::Span<const void* const> leaves) {
  if (leaves.empty()) return;
  BeginFold(static_cast<int64_t>(leaves.size()));
  FoldRange(leaves, 0, elements_);
  EndFold();
}

void TreeAccumulator::BeginFold(int64_t count) {
  SHERD_CHECK(!finished_ && count > 0 && leaves_ + count <= max_leaves_);
  carry_.after = leaves_ + count;
  carry_.top = std::bit_width(static_cast<uint64_t>(leaves_ ^ carry_.after)) - 1;
  carry_.carried = ((carry_.after >> carry_.top) << carry_.top) - leaves_;
  carry_.assigned = AssignBuffers(carry_.after, carry_.top);
  carry_.fresh = (leaves_ & ((int64_t{1} << carry_.top) - 1)) == 0;
}

template <typename Tree, typename AddLeaf>
void TreeAccumulator::CarryRange(Tree& tree, int64_t first, const AddLeaf& add) {
  const int top = carry_.top;
  const auto keep = [&](int level) {
    tree.MoveDigit(level, Values(carry_.assigned[static_cast<size_t>(level)], first));
  };
  // Carried digits are summed in their own buffers, so no new digit may be written before `top`
  // has taken them all in.
  for (int level = 0; level < top; ++level) {
    const int buffer = digits_[static_cast<size_t>(level)];
    if (buffer != kNoBuffer) tree.SetDigit(level, Values(buffer, first));
  }
  int64_t index = 0;
  for (; index < carry_.carried; ++index) add(index);
  keep(top);
  for (; index < carry_.after - leaves_; ++index) add(index);
  for (int level = 0; level < top; ++level) {
    if (tree.digit(level) != nullptr) keep(level);
  }
}

void TreeAccumulator::FoldRange(absl::Span<const void* const> leaves, int64_t begin,
                                int64_t elements) {
  SHERD_CHECK(static_cast<int64_t>(leaves.size()) == carry_.after - leaves_);
  SHERD_CHECK(begin >= 0 && elements >= 0 && begin <= elements_ - elements);
  TileTree tree(dtype_);
  ForEachTile(elements, dtype_, [&](int64_t offset, int64_t tile) {
    const int64_t first = begin + offset;
    const int top = carry_.assigned[static_cast<size_t>(carry_.top)];
    tree.Begin(tile, carry_.fresh ? Values(top, first) : nullptr);
    CarryRange(tree, first, [&](int64_t index) {
      tree.Add(static_cast<const std::byte*>(leaves[static_cast<size_t>(index)]) +
               offset * SizeOf(dtype_));
    });
  });
}

void TreeAccumulator::FoldRange(StreamTree& tree, absl::Span<void* const> leaves, int kept,
                                int64_t first, int64_t elements) {
  SHERD_CHECK(static_cast<int64_t>(leaves.size()) == carry_.after - leaves_);
  SHERD_CHECK(first >= 0 && elements >= 0 && first <= elements_ - elements);
  tree.Begin(elements);
  CarryRange(tree, first, [&](int64_t index) {
    void* const leaf = leaves[static_cast<size_t>(index)];
    index == kept ? tree.Add(leaf) : tree.AddWritable(leaf);
  });
}

void TreeAccumulator::FoldSum(DeviceStream& stream, const void* sum, int64_t leaves) {
  SHERD_CHECK(!finished_ && leaves > 0 && leaves_ + leaves <= max_leaves_);
  if (elements_ > 0 && leaves_ == 0) {
    stream.Copy(buffers_[0], sum, elements_ * SizeOf(dtype_));
  } else if (elements_ > 0) {
    stream.AddRounded(buffers_[0], sum, dtype_, elements_);
  }
  // The one digit that there is, whatever it counts.
  digits_[0] = 0;
  leaves_ += leaves;
}

void TreeAccumulator::EndFold() {
  digits_ = std::move(carry_.assigned);
  leaves_ = carry_.after;
}

std::byte* TreeAccumulator::PlaceOfSum() const {
  int oldest = 0;
  for (const int buffer : digits_) {
    if (buffer != kNoBuffer) oldest = buffer;
  }
  return Values(oldest, 0);
}

void* TreeAccumulator::Finish(DeviceStream& stream) {
  if (finished_) return sum_;
  finished_ = true;
  sum_ = PlaceOfSum();
  if (elements_ == 0) return sum_;
  StreamTree tree(stream, dtype_);
  tree.Begin(elements_);
  for (int level = 0; level < TileTree::kLevels; ++level) {
    const int buffer = digits_[static_cast<size_t>(level)];
    if (buffer != kNoBuffer) tree.SetDigit(level, Values(buffer, 0));
  }
  tree.SumInto(sum_);
  return sum_;
}

void* TreeAccumulator::Finish() {
  if (finished_) return sum_;
  finished_ = true;
  std::byte* const sum = PlaceOfSum();
  sum_ = sum;
  if (leaves_ == 0) {
    if (elements_ > 0)
      std::memset(Values(0, 0), 0, static_cast<size_t>(elements_ * SizeOf(dtype_)));
    return sum_;
  }
  TileTree tree(dtype_);
  ForEachTile(elements_, dtype_, [&](int64_t first, int64_t elements) {
    tree.Begin(elements);
    for (int level = 0; level < TileTree::kLevels; ++level) {
      const int buffer = digits_[static_cast<size_t>(level)];
      if (buffer != kNoBuffer) tree.SetDigit(level, Values(buffer, first));
    }
    SHERD_CHECK(tree.Sum() == sum + first * SizeOf(dtype_));
  });
  return sum_;
}

}  // namespace sherd
