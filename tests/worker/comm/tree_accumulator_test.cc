#include "worker/comm/tree_accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "reference_tree.h"

namespace sherd {
namespace {

Values BytesOf(const void* data, int64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  return bytes == 0 ? Values() : Values(begin, begin + bytes);
}

std::vector<Values> RandomLeaves(std::mt19937_64& random, DType dtype, int64_t elements,
                                 int64_t count) {
  std::vector<Values> leaves;
  for (int64_t i = 0; i < count; ++i) leaves.push_back(RandomValues(random, dtype, elements));
  return leaves;
}

// Folds leaves [begin, end) in one call.
void Fold(TreeAccumulator& tree, const std::vector<Values>& leaves, int64_t begin, int64_t end) {
  std::vector<const void*> pointers;
  for (int64_t i = begin; i < end; ++i) {
    pointers.push_back(leaves[static_cast<size_t>(i)].data());
  }
  tree.Fold(pointers);
}

// F12: the order of summation is the tree's, whatever the calls.
TEST(TreeAccumulator, SumsByTheTreeHoweverLeavesAreSpreadOverCalls) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 120; ++trial) {
    const DType dtype = trial % 2 == 0 ? DType::kF32 : DType::kBF16;
    const auto count = static_cast<int64_t>(1 + random() % 40);
    const int64_t elements = std::array<int64_t, 5>{1, 3, 257, 8192, 8193}[random() % 5];
    const std::vector<Values> leaves = RandomLeaves(random, dtype, elements, count);
    MemoryMeter meter;
    TreeAccumulator tree(meter, Pool::kAccumulators, elements, dtype, count);
    for (int64_t begin = 0; begin < count;) {
      const auto some = static_cast<int64_t>(random() % static_cast<uint64_t>(count - begin + 1));
      Fold(tree, leaves, begin, begin + some);
      begin += some;
    }
    EXPECT_EQ(tree.leaves(), count);
    const Values sum = BytesOf(tree.Finish(), elements * SizeOf(dtype));
    EXPECT_EQ(sum, ReferenceTree(dtype, elements).Sum(leaves))
        << count << " leaves, trial " << trial;
  }
}

// Over TCP leaves come in pieces.
TEST(TreeAccumulator, FoldsRangeByRangeInAnyOrderWithTheSameBits) {
  std::mt19937_64 random(6);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    constexpr int64_t kElements = 20'001;
    const std::vector<Values> leaves = RandomLeaves(random, dtype, kElements, 11);
    MemoryMeter meter;
    TreeAccumulator tree(meter, Pool::kAccumulators, kElements, dtype, 11);
    for (const std::array<size_t, 2> fold : {std::array<size_t, 2>{0, 3}, {3, 4}, {4, 11}}) {
      tree.BeginFold(static_cast<int64_t>(fold[1] - fold[0]));
      for (const std::array<int64_t, 2> range :
           {std::array<int64_t, 2>{9000, kElements}, {0, 1}, {1, 9000}}) {
        std::vector<const void*> pointers;
        for (size_t leaf = fold[0]; leaf < fold[1]; ++leaf) {
          pointers.push_back(leaves[leaf].data() + range[0] * SizeOf(dtype));
        }
        tree.FoldRange(pointers, range[0], range[1] - range[0]);
      }
      tree.EndFold();
    }
    EXPECT_EQ(tree.leaves(), 11);
    EXPECT_EQ(BytesOf(tree.Finish(), kElements * SizeOf(dtype)),
              ReferenceTree(dtype, kElements).Sum(leaves));
  }
}

TEST(TreeAccumulator, OneLeafIsItsOwnSum) {
  std::mt19937_64 random(2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<Values> leaves = RandomLeaves(random, dtype, 1001, 1);
    MemoryMeter meter;
    TreeAccumulator tree(meter, Pool::kAccumulators, 1001, dtype, 7);
    Fold(tree, leaves, 0, 1);
    EXPECT_EQ(BytesOf(tree.Finish(), 1001 * SizeOf(dtype)), leaves[0]);
  }
}

TEST(TreeAccumulator, WithoutLeavesTheSumIsZeroAlsoAfterReset) {
  std::mt19937_64 random(3);
  const std::vector<Values> leaves = RandomLeaves(random, DType::kF32, 33, 3);
  MemoryMeter meter;
  TreeAccumulator tree(meter, Pool::kAccumulators, 33, DType::kF32, 3);
  const Values zeros(33 * 4);
  EXPECT_EQ(BytesOf(tree.Finish(), 33 * 4), zeros);
  tree.Reset();
  Fold(tree, leaves, 0, 3);
  EXPECT_NE(BytesOf(tree.Finish(), 33 * 4), zeros);
  tree.Reset();
  EXPECT_EQ(tree.leaves(), 0);
  EXPECT_EQ(BytesOf(tree.Finish(), 33 * 4), zeros);
}

TEST(TreeAccumulator, StartsAnewAfterReset) {
  std::mt19937_64 random(4);
  MemoryMeter meter;
  TreeAccumulator tree(meter, Pool::kAccumulators, 100, DType::kBF16, 13);
  for (int step = 0; step < 5; ++step) {
    const std::vector<Values> leaves = RandomLeaves(random, DType::kBF16, 100, 13 - step);
    const auto count = static_cast<int64_t>(leaves.size());
    Fold(tree, leaves, 0, count / 2);
    Fold(tree, leaves, count / 2, count);
    EXPECT_EQ(BytesOf(tree.Finish(), 200), ReferenceTree(DType::kBF16, 100).Sum(leaves));
    EXPECT_EQ(tree.Finish(), tree.Finish());
    tree.Reset();
  }
}

TEST(TreeAccumulator, AcceptsNoElements) {
  MemoryMeter meter;
  TreeAccumulator tree(meter, Pool::kAccumulators, 0, DType::kF32, 4);
  const void* leaf = nullptr;
  tree.Fold({leaf, leaf, leaf});
  tree.Finish();
  EXPECT_EQ(tree.leaves(), 3);
  EXPECT_EQ(meter.peak_total(), 0);
}

TEST(TreeAccumulator, BufferCountIsThePublishedFormula) {
  EXPECT_EQ(TreeAccumulator::BufferCount(0), 1);
  for (int64_t leaves = 1; leaves <= 300; ++leaves) {
    EXPECT_EQ(TreeAccumulator::BufferCount(leaves),
              std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(leaves + 1))) - 1));
  }
  // One round of four ranks needs the sum alone; three rounds of it one more.
  EXPECT_EQ(TreeAccumulator::BufferCount(4, 4), 1);
  EXPECT_EQ(TreeAccumulator::BufferCount(12, 4), 2);
  EXPECT_EQ(TreeAccumulator::BufferCount(3, 3), 2);
  EXPECT_EQ(TreeAccumulator::BufferCount(7, 4), 3);  // a last round of three
}

// F16: memory is what the formula predicts, and nothing is allocated later.
TEST(TreeAccumulator, HoldsExactlyThePredictedBytes) {
  std::mt19937_64 random(5);
  for (const int64_t per_fold : {1, 2, 3, 4, 5, 8}) {
    const int64_t rounds = 5;
    const int64_t count = per_fold * rounds - per_fold / 2;
    const std::vector<Values> leaves = RandomLeaves(random, DType::kF32, 64, count);
    MemoryMeter meter;
    TreeAccumulator tree(meter, Pool::kGrads, 64, DType::kF32, count, per_fold);
    const int64_t predicted = (TreeAccumulator::BufferCount(count, per_fold) - 1) * 64 * 4;
    EXPECT_EQ(meter.current(Pool::kAccumulators), predicted);
    EXPECT_EQ(meter.current(Pool::kGrads), 64 * 4);
    for (int64_t begin = 0; begin < count; begin += per_fold) {
      Fold(tree, leaves, begin, std::min(count, begin + per_fold));
    }
    EXPECT_EQ(BytesOf(tree.Finish(), 64 * 4), ReferenceTree(DType::kF32, 64).Sum(leaves));
    EXPECT_EQ(meter.peak_total(), predicted + 64 * 4);
  }
}

}  // namespace
}  // namespace sherd
