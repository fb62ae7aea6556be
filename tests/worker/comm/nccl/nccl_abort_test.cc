// Aborts that do not get done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "nccl_ranks.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The deadline is 500 ms; what comes on top is how busy the machine is.
constexpr absl::Duration kExitsWithin = absl::Milliseconds(1500);

// F29: the process goes when its abort does not come back.
TEST(NcclAbort, AnAbortThatHangsEndsTheProcess) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  ranks.nccl().Inject({.call = NcclCall::kAbort, .rank = 1, .what = NcclFault::kStubborn});
  const absl::Time start = absl::Now();
  members[1]->Abort("epoch 5 is over");
  ASSERT_TRUE(ranks.AwaitExit(1, absl::Seconds(10)));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(490));
  EXPECT_LT(absl::Now() - start, kExitsWithin);
  EXPECT_EQ(ranks.exit(1),
            "NCCL could not be aborted within 500ms (ncclCommAbort has not returned) after: "
            "epoch 5 is over");
  // The others' went well.
  EXPECT_EQ(ranks.exit(0), "");
  ranks.nccl().Release();
}

TEST(NcclAbort, ACallThatNeverReturnsEndsTheProcess) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  ranks.nccl().Inject({.call = NcclCall::kGroupEnd, .rank = 0, .what = NcclFault::kStubborn});
  members[0]->AllReduce(members[0]->arena(), 1000, DType::kF32, 2);
  members[1]->AllReduce(members[1]->arena(), 1000, DType::kF32, 2);
  ASSERT_TRUE(ranks.nccl().AwaitHang(absl::Seconds(10)));
  members[0]->Abort("enough");
  ASSERT_TRUE(ranks.AwaitExit(0, absl::Seconds(10)));
  EXPECT_THAT(ranks.exit(0), HasSubstr("a call of NCCL has not returned"));
  ranks.nccl().Release();
  members.clear();
  EXPECT_EQ(ranks.exit(1), "");
}

TEST(NcclAbort, ADeviceThatGoesOnEndsTheProcess) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  ranks.nccl().Inject({.call = NcclCall::kKernel, .rank = 0, .what = NcclFault::kStubborn});
  for (auto& member : members) member->AllReduce(member->arena(), 1000, DType::kF32, 2);
  ASSERT_TRUE(ranks.nccl().AwaitHang(absl::Seconds(10)));
  members[0]->Abort("enough");
  ASSERT_TRUE(ranks.AwaitExit(0, absl::Seconds(10)));
  EXPECT_THAT(ranks.exit(0), HasSubstr("NCCL could not be aborted within 500ms"));
  ranks.nccl().Release();
  members.clear();
  EXPECT_EQ(ranks.exit(1), "");
}

// What destructors would wait for is not waited for.
TEST(NcclStuckDeathTest, TheProcessEndsAtOnceWithItsExitCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitNcclStuck("NCCL could not be aborted"), testing::ExitedWithCode(70),
              "NCCL could not be aborted.*exit code 70");
}

// F29: members that do not end theirs do not keep one from going.
TEST(NcclAbort, LeavingTakesNoLongerThanAnAbort) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  ranks.nccl().Inject(
      {.call = NcclCall::kFinalize, .rank = 0, .what = NcclFault::kDelay, .polls = 1 << 30});
  const absl::Time start = absl::Now();
  members[0].reset();
  EXPECT_LT(absl::Now() - start, kExitsWithin);
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kAbort), 1);
  EXPECT_EQ(ranks.exit(0), "");
  members[1].reset();
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kDestroy), 1);
}

TEST(NcclAbort, LeavingInOrderAbortsNothing) {
  NcclRanks ranks(3);
  auto members = ranks.MustForm();
  for (int rank = 0; rank < 3; ++rank) {
    ranks.nccl().Inject(
        {.call = NcclCall::kFinalize, .rank = rank, .what = NcclFault::kDelay, .polls = 20});
  }
  members.clear();
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kAbort), 0);
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kDestroy), 3);
}

TEST(NcclAbort, ADestructionThatFailsIsNotTriedAgain) {
  NcclRanks ranks(1);
  auto members = ranks.MustForm();
  ranks.nccl().Inject({.call = NcclCall::kFinalize, .what = NcclFault::kFail});
  members.clear();
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kAbort), 1);
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kDestroy), 0);
}

}  // namespace
}  // namespace sherd
