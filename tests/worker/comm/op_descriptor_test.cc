#include "worker/comm/op_descriptor.h"

#include <gtest/gtest.h>

#include "worker/comm/progress.h"

namespace sherd {
namespace {

const OpDescriptor kReduce = {.sequence = 12,
                              .collective = Collective::kAllReduce,
                              .dtype = DType::kBF16,
                              .count = 1024,
                              .contributors = 3};

TEST(OpDescriptor, MembersMayDifferInTheArenaOffsetAlone) {
  OpDescriptor other = kReduce;
  other.arena_offset = 4096;
  EXPECT_TRUE(CheckSameCall(0, kReduce, 1, other).ok());
}

// F34
TEST(OpDescriptor, AnyOtherDifferenceNamesBothRanksAndCalls) {
  std::vector<OpDescriptor> others(6, kReduce);
  others[0].collective = Collective::kReduceScatter;
  others[1].dtype = DType::kF32;
  others[2].count = 1023;
  others[3].contributors = 2;
  others[4].sequence = 13;
  others[5].root = 1;
  for (const OpDescriptor& other : others) {
    const absl::Status status = CheckSameCall(0, kReduce, 5, other);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(),
              "rank 5 called " + Describe(other) + " where rank 0 called " + Describe(kReduce));
  }
}

TEST(OpDescriptor, DescribesACallInWords) {
  EXPECT_EQ(Describe(kReduce), "all_reduce #12 of 1024 bf16 from 3 contributors");
  EXPECT_EQ(Describe({.sequence = 1, .collective = Collective::kBarrier}), "barrier #1");
  EXPECT_EQ(Describe({.sequence = 2, .collective = Collective::kBroadcast, .count = 8, .root = 3}),
            "broadcast #2 of 8 bytes from rank 3");
  EXPECT_EQ(Describe({.sequence = 3, .collective = Collective::kExchange, .count = 16}),
            "exchange #3 of 16 bytes");
}

TEST(Progress, GrowsWithPhaseAndSequence) {
  EXPECT_TRUE(HasReached(ProgressWord(5, Phase::kArrived), ProgressWord(5, Phase::kArrived)));
  EXPECT_TRUE(HasReached(ProgressWord(5, Phase::kDone), ProgressWord(5, Phase::kArrived)));
  EXPECT_FALSE(HasReached(ProgressWord(5, Phase::kArrived), ProgressWord(5, Phase::kDone)));
  EXPECT_TRUE(HasReached(ProgressWord(6, Phase::kArrived), ProgressWord(5, Phase::kDone)));
  EXPECT_FALSE(HasReached(0, ProgressWord(1, Phase::kArrived)));
}

TEST(Progress, SurvivesTheWrapOfTheWord) {
  const uint64_t last = (1ull << 30) - 1;
  EXPECT_FALSE(
      HasReached(ProgressWord(last, Phase::kDone), ProgressWord(last + 1, Phase::kArrived)));
  EXPECT_TRUE(
      HasReached(ProgressWord(last + 1, Phase::kArrived), ProgressWord(last, Phase::kDone)));
}

TEST(OpDescriptor, ReadsBackFromTheWireWithoutTheArenasOffset) {
  const OpDescriptor op{.sequence = 1ull << 40,
                        .collective = Collective::kReduceScatter,
                        .dtype = DType::kBF16,
                        .count = (1ll << 33) + 5,
                        .segments = 3,
                        .contributors = 7,
                        .root = 2,
                        .arena_offset = 4096};
  const auto read = DecodeDescriptor(EncodeDescriptor(op));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(CheckSameCall(0, op, 1, *read).ok());
  EXPECT_EQ(read->arena_offset, 0);
}

TEST(OpDescriptor, RefusesWhatIsNoOperation) {
  const WireDescriptor good = EncodeDescriptor({.sequence = 1});
  ASSERT_TRUE(DecodeDescriptor(good).ok());
  for (const size_t at : {28u, 29u, 30u, 31u}) {  // collective, type and the zeros behind them
    WireDescriptor bad = good;
    bad[at] = std::byte{0x7f};
    EXPECT_EQ(DecodeDescriptor(bad).status().code(), absl::StatusCode::kInvalidArgument) << at;
  }
}

}  // namespace
}  // namespace sherd
