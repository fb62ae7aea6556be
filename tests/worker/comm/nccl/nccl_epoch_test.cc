// The life of NCCL's communicators in an epoch, without links.
#include "worker/comm/nccl/nccl_epoch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "nccl_ranks.h"
#include "tests/support/process_counts.h"

namespace sherd {
namespace {

using testing::CountDescriptors;
using testing::CountThreads;
using testing::ResidentBytes;

constexpr absl::Duration kEndsWithin = absl::Milliseconds(500);
Deadline Long() { return Deadline(absl::Seconds(60)); }

NcclEpoch::Patience NoEnd() {
  return [](absl::Duration) { return absl::OkStatus(); };
}

TEST(NcclEpoch, AMemberAloneJoinsWorksAndLeaves) {
  NcclRanks ranks(1);
  NcclEpoch& epoch = ranks.epoch(0);
  const auto id = epoch.NewUniqueId(Long());
  ASSERT_TRUE(id.ok());
  const auto comm = epoch.Join(*id, 1, 0, "alone", Long(), NoEnd());
  ASSERT_TRUE(comm.ok()) << comm.status();
  const auto memory = epoch.Allocate(4096, Long());
  ASSERT_TRUE(memory.ok());
  const auto handle = epoch.Register(*comm, *memory, 4096, Long());
  ASSERT_TRUE(handle.ok());
  EXPECT_TRUE(epoch.Check(*comm).ok());
  epoch.Leave(*comm, {*handle});
  epoch.Free(*memory);
  EXPECT_TRUE(epoch.status().ok());
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kFinalize), 1);
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kDestroy), 1);
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kAbort), 0);
}

// F33: init is polled against a deadline, and the abort is done 500 ms later at the latest.
TEST(NcclEpoch, WhoJoinsWithAnAbsentPeerGivesUpAtTheDeadlineAndAborts) {
  NcclRanks ranks(1);
  NcclEpoch& epoch = ranks.epoch(0);
  const absl::Time start = absl::Now();
  const auto comm = epoch.Join(*epoch.NewUniqueId(Long()), 2, 0, "pair",
                               Deadline(absl::Milliseconds(200)), NoEnd());
  EXPECT_EQ(comm.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(200));
  epoch.Abort(comm.status());
  epoch.AwaitAborted();
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(200) + kEndsWithin);
  EXPECT_EQ(ranks.nccl().live_comms(), 0);
  EXPECT_EQ(ranks.exit(0), "");
}

TEST(NcclEpoch, AbortFromAnotherThreadEndsAJoin) {
  NcclRanks ranks(1);
  NcclEpoch& epoch = ranks.epoch(0);
  absl::Notification joining;
  std::thread aborting([&] {
    joining.WaitForNotification();
    epoch.Abort(absl::UnavailableError("rank 1 has died"));
  });
  const auto comm =
      epoch.Join(*epoch.NewUniqueId(Long()), 2, 0, "pair", Long(), [&joining](absl::Duration) {
        if (!joining.HasBeenNotified()) joining.Notify();
        return absl::OkStatus();
      });
  EXPECT_EQ(comm.status(), absl::AbortedError("rank 1 has died"));
  aborting.join();
  epoch.AwaitAborted();
  // Nothing begins any more.
  EXPECT_EQ(epoch.NewUniqueId(Long()).status(), absl::AbortedError("rank 1 has died"));
}

TEST(NcclEpoch, AllCommunicatorsAreAbortedInOneGroup) {
  NcclRanks ranks(1);
  NcclEpoch& epoch = ranks.epoch(0);
  ASSERT_TRUE(epoch.Join(*epoch.NewUniqueId(Long()), 1, 0, "data", Long(), NoEnd()).ok());
  ASSERT_TRUE(epoch.Join(*epoch.NewUniqueId(Long()), 1, 0, "tensor", Long(), NoEnd()).ok());
  // One that is still being joined, too.
  EXPECT_FALSE(epoch
                   .Join(*epoch.NewUniqueId(Long()), 2, 0, "replicas",
                         Deadline(absl::Milliseconds(20)), NoEnd())
                   .ok());
  epoch.Abort(absl::AbortedError("over"));
  epoch.AwaitAborted();
  EXPECT_THAT(ranks.nccl().abort_groups(),
              ::testing::ElementsAre(::testing::ElementsAre("data", "tensor", "replicas")));
}

TEST(NcclEpoch, ACommunicatorThatComesAfterTheAbortIsAbortedToo) {
  NcclRanks ranks(1);
  NcclEpoch& epoch = ranks.epoch(0);
  ranks.nccl().Inject({.call = NcclCall::kInit, .what = NcclFault::kStubborn});
  EXPECT_EQ(
      epoch
          .Join(*epoch.NewUniqueId(Long()), 1, 0, "late", Deadline(absl::Milliseconds(20)), NoEnd())
          .status()
          .code(),
      absl::StatusCode::kDeadlineExceeded);
  epoch.Abort(absl::AbortedError("over"));
  epoch.AwaitAborted();
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kAbort), 0);
  ranks.nccl().Release();
  // On the same thread, behind it.
  epoch.Free(nullptr);
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kAbort), 1);
  EXPECT_EQ(ranks.nccl().live_comms(), 0);
}

// F36
TEST(NcclEpoch, TwoHundredInitsAndAbortsLeaveNothingBehind) {
  const auto cycle = [] {
    NcclRanks ranks(2);
    ranks.form().arena_bytes = 1 << 20;
    auto members = ranks.MustForm();
    const Ticket ticket = members[0]->AllReduce(members[0]->arena(), 1000, DType::kF32, 2);
    members[1]->Abort("again");
    EXPECT_EQ(members[0]->Wait(ticket).code(), absl::StatusCode::kAborted);
    members.clear();
    EXPECT_EQ(ranks.exit(0) + ranks.exit(1), "");
  };
  for (int warm_up = 0; warm_up < 10; ++warm_up) cycle();
  const int64_t threads = CountThreads();
  const int64_t descriptors = CountDescriptors();
  [[maybe_unused]] const int64_t resident = ResidentBytes();
  for (int round = 0; round < 200; ++round) cycle();
  // One that has been joined may still be listed.
  EXPECT_LE(CountThreads(), threads + 3);
  EXPECT_LE(CountDescriptors(), descriptors);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Sanitizers keep what was freed.
  EXPECT_LT(ResidentBytes() - resident, 32 << 20);
#endif
}

}  // namespace
}  // namespace sherd
