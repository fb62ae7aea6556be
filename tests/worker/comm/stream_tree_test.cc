#include "worker/comm/stream_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/fold.h"
#include "reference_tree.h"
#include "worker/comm/tree_accumulator.h"

namespace sherd {
namespace {

// Does at once what is enqueued, in host memory.
class ImmediateStream final : public DeviceStream {
 public:
  CUstream_st* handle() const override { return nullptr; }
  std::string failure() const override { return ""; }
  void Record(DeviceEvent& event) override {}
  void Copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    ++copies_;
  }
  void Clear(void* to, int64_t bytes) override { std::memset(to, 0, static_cast<size_t>(bytes)); }
  void AddRounded(void* sum, const void* value, DType dtype, int64_t elements) override {
    AddRoundedSerial(sum, value, dtype, elements);
  }
  int copies() const { return copies_; }

 private:
  int copies_ = 0;
};

std::vector<Values> RandomLeaves(std::mt19937_64& random, DType dtype, int64_t elements,
                                 int64_t count) {
  std::vector<Values> leaves;
  for (int64_t i = 0; i < count; ++i) leaves.push_back(RandomValues(random, dtype, elements));
  return leaves;
}

// F12. Of n leaves one may not be written to, as a member's own; a range at a time.
TEST(StreamTree, FoldsWithTheBitsOfTheTreeAndLeavesTheOwnLeafAlone) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const DType dtype = trial % 2 == 0 ? DType::kF32 : DType::kBF16;
    const auto per_call = static_cast<int64_t>(1 + random() % 9);
    const auto calls = static_cast<int64_t>(1 + random() % 5);
    constexpr int64_t kElements = 37;
    constexpr int64_t kPiece = 16;
    const std::vector<Values> leaves = RandomLeaves(random, dtype, kElements, calls * per_call);
    MemoryMeter meter;
    TreeAccumulator tree(meter, Pool::kAccumulators, kElements, dtype, calls * per_call, per_call);
    ImmediateStream stream;
    for (int64_t call = 0; call < calls; ++call) {
      std::vector<Values> staged(leaves.begin() + call * per_call,
                                 leaves.begin() + (call + 1) * per_call);
      const auto own = static_cast<int>(random() % static_cast<uint64_t>(per_call + 1)) - 1;
      tree.BeginFold(per_call);
      for (int64_t first = 0; first < kElements; first += kPiece) {
        std::vector<void*> pointers;
        for (Values& leaf : staged) pointers.push_back(leaf.data() + first * SizeOf(dtype));
        StreamTree piece(stream, dtype);
        tree.FoldRange(piece, pointers, own, first, std::min(kPiece, kElements - first));
      }
      tree.EndFold();
      if (own >= 0) {
        const auto index = static_cast<size_t>(own);
        EXPECT_EQ(staged[index], leaves[static_cast<size_t>(call * per_call) + index]);
      }
    }
    const auto* const sum = static_cast<const std::byte*>(tree.Finish(stream));
    EXPECT_EQ(Values(sum, sum + kElements * SizeOf(dtype)),
              ReferenceTree(dtype, kElements).Sum(leaves))
        << "trial " << trial;
  }
}

TEST(StreamTree, SumsIntoThePlaceOfOneOfTheLeaves) {
  std::mt19937_64 random(4);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t count = 1; count <= 9; ++count) {
      for (size_t own = 0; own < static_cast<size_t>(count); ++own) {
        const std::vector<Values> leaves = RandomLeaves(random, dtype, 21, count);
        std::vector<Values> staged = leaves;
        ImmediateStream stream;
        StreamTree tree(stream, dtype);
        tree.Begin(21);
        for (Values& leaf : staged) tree.AddWritable(leaf.data());
        tree.SumInto(staged[own].data());
        EXPECT_EQ(staged[own], ReferenceTree(dtype, 21).Sum(leaves));
        // The oldest leaf's memory is where the sum comes about.
        EXPECT_EQ(stream.copies(), own == 0 ? 0 : 1);
      }
    }
  }
}

TEST(StreamTree, SumsToZeroWithoutLeaves) {
  Values sum(12, std::byte{0x55});
  ImmediateStream stream;
  StreamTree tree(stream, DType::kF32);
  tree.Begin(3);
  tree.SumInto(sum.data());
  EXPECT_EQ(sum, Values(12));
}

// reproducible: false.
TEST(TreeAccumulator, AddsSumsInPlaceWithoutATree) {
  std::mt19937_64 random(5);
  const std::vector<Values> sums = RandomLeaves(random, DType::kF32, 9, 3);
  MemoryMeter meter;
  TreeAccumulator tree(meter, Pool::kAccumulators, 9, DType::kF32, 12, 4);
  ImmediateStream stream;
  for (int round = 0; round < 2; ++round) {
    for (const Values& sum : sums) tree.FoldSum(stream, sum.data(), 4);
    EXPECT_EQ(tree.leaves(), 12);
    const auto* const total = static_cast<const float*>(tree.Finish(stream));
    for (int64_t i = 0; i < 9; ++i) {
      EXPECT_EQ(total[i], ValueAt(sums[0], DType::kF32, i) + ValueAt(sums[1], DType::kF32, i) +
                              ValueAt(sums[2], DType::kF32, i));
    }
    tree.Reset();
  }
}

}  // namespace
}  // namespace sherd
