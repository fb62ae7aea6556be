#include "worker/comm/stream_tree.h"

#include <utility>

#include "common/check.h"

namespace sherd {

void StreamTree::Begin(int64_t elements) {
  elements_ = elements;
  digits_.fill(Node());
}

void StreamTree::MoveDigit(int level, void* to) { CopyTo(to, Take(level).values); }

void StreamTree::SumInto(void* sum) {
  Node total;
  for (int level = 0; level < TileTree::kLevels; ++level) {
    if (digit(level) == nullptr) continue;
    total = total.values == nullptr ? Take(level) : Combine(Take(level), total);
  }
  total.values == nullptr ? stream_.Clear(sum, bytes()) : CopyTo(sum, total.values);
}

void StreamTree::Push(Node node) {
  int level = 0;
  for (; digit(level) != nullptr; ++level) {
    node = Combine(Take(level), node);
    SHERD_CHECK(level + 1 < TileTree::kLevels);
  }
  digits_[Index(level)] = node;
}

StreamTree::Node StreamTree::Take(int level) {
  return std::exchange(digits_[Index(level)], Node());
}

// As TileTree: the older node's memory first, and the order of the operands changes no bit.
StreamTree::Node StreamTree::Combine(Node older, Node newer) {
  if (older.writable == nullptr) std::swap(older, newer);
  SHERD_CHECK(older.writable != nullptr);
  stream_.AddRounded(older.writable, newer.values, dtype_, elements_);
  return older;
}

void StreamTree::CopyTo(void* to, const void* from) {
  if (to != from) stream_.Copy(to, from, bytes());
}

}  // namespace sherd
