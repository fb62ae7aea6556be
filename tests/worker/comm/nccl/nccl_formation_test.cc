// How groups over NCCL come about, and how they do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "nccl_ranks.h"
#include "tests/worker/comm/communicator_kinds.h"
#include "worker/comm/formation.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr absl::Duration kEndsWithin = absl::Milliseconds(500);

void ExpectAll(const std::vector<NcclRanks::Formed>& formed, absl::StatusCode code,
               const std::string& text) {
  for (const NcclRanks::Formed& member : formed) {
    EXPECT_EQ(member.status().code(), code) << member.status();
    EXPECT_THAT(std::string(member.status().message()), HasSubstr(text));
  }
}

// F25
TEST(NcclFormation, EveryGroupHasAnIdOfItsOwn) {
  NcclRanks ranks(3);
  for (const char* group : {"data:0", "tensor:0", "data:0"}) {
    auto members = ranks.MustForm(group);
    RunRanks(3, [&](int rank) {
      Communicator& comm = *members[static_cast<size_t>(rank)];
      EXPECT_EQ(comm.transport(), "nccl");
      EXPECT_TRUE(comm.Wait(comm.AllReduce(comm.arena(), 10, DType::kF32, 3)).ok());
    });
  }
  EXPECT_EQ(ranks.nccl().ids_made(), 3);
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kGetUniqueId), 3);
  // Arenas, and where leaves are received.
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kRegister), 3 * 3 * 2);
  EXPECT_EQ(ranks.nccl().calls(NcclCall::kDeregister), 3 * 3 * 2);
}

// That of NCCL's calls, and that of each group's operations.
TEST(NcclFormation, ThreadsThatUseTheDeviceAreBoundToIt) {
  NcclRanks ranks(2);
  auto data = ranks.MustForm("data:0");
  auto tensor = ranks.MustForm("tensor:0");
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.device(rank).bound_threads(), 3);
}

TEST(NcclFormation, FormingTakesAsLongAsNcclIsInProgress) {
  NcclRanks ranks(2);
  ranks.nccl().Inject({.call = NcclCall::kInit, .what = NcclFault::kDelay, .polls = 100});
  auto members = ranks.MustForm();
  EXPECT_GE(ranks.nccl().calls(NcclCall::kAsyncError), 100);
}

TEST(NcclFormation, AllAreToldThatNoIdCouldBeMade) {
  NcclRanks ranks(3);
  ranks.nccl().Inject({.call = NcclCall::kGetUniqueId,
                       .what = NcclFault::kFail,
                       .result = NcclResult::kSystemError});
  ExpectAll(ranks.FormAll("data:0"), absl::StatusCode::kInternal,
            "ncclGetUniqueId: scripted error 2");
}

TEST(NcclFormation, AllAreToldWhoCouldNotJoin) {
  NcclRanks ranks(3);
  ranks.nccl().Inject({.call = NcclCall::kInit, .rank = 1, .what = NcclFault::kFail});
  const auto formed = ranks.FormAll("data:0");
  ExpectAll(formed, absl::StatusCode::kInternal,
            "rank 1 could not join data:0 of epoch 5 over NCCL: ncclCommInitRankConfig: scripted "
            "error 3");
  // The others may hear of it from each other.
  EXPECT_GE(LostMemberOf(formed[0].status()), 1);
  EXPECT_EQ(LostMemberOf(formed[1].status()), -1);
  EXPECT_TRUE(LostMemberOf(formed[2].status()) == 0 || LostMemberOf(formed[2].status()) == 1);
}

TEST(NcclFormation, AllAreToldWhoseMemoryCannotBeRegistered) {
  NcclRanks ranks(2);
  ranks.nccl().Inject({.call = NcclCall::kRegister, .rank = 1, .what = NcclFault::kFail});
  auto formed = ranks.FormAll("data:0");
  EXPECT_THAT(std::string(formed[1].status().message()), HasSubstr("ncclCommRegister"));
  // The other may have been done, and hears of it later.
  if (formed[0].ok()) {
    Communicator& comm = **formed[0];
    EXPECT_EQ(comm.Wait(comm.Barrier()), formed[1].status());
  } else {
    EXPECT_EQ(formed[0].status().message(), formed[1].status().message());
    EXPECT_EQ(LostMemberOf(formed[0].status()), 1);
  }
}

TEST(NcclFormation, MemoryThatIsNotThereIsNamedWithItsSize) {
  NcclRanks ranks(1);
  ranks.nccl().Inject({.call = NcclCall::kMemAlloc, .what = NcclFault::kFail});
  const auto formed = ranks.Form("data:0", 0);
  EXPECT_EQ(formed.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(formed.status().message()), HasSubstr("1048576 bytes"));
}

// F34: those who wait for it hear of it.
TEST(NcclFormation, AMemberWithoutMemoryTellsTheOthers) {
  NcclRanks ranks(2);
  ranks.nccl().Inject({.call = NcclCall::kMemAlloc, .what = NcclFault::kFail});
  const absl::Status own = ranks.Form("data:0", 1).status();
  const absl::Status other = ranks.Form("data:0", 0).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kResourceExhausted) << other;
  EXPECT_EQ(other.message(), own.message());
  EXPECT_EQ(LostMemberOf(other), 1);
}

// F33, F36: one rank's NCCL hangs in its init. The others give up at the deadline; it can only go.
TEST(NcclFormation, AnInitThatHangsEndsAtTheDeadlineAndItsProcessWithIt) {
  NcclRanks ranks(3);
  ranks.form().form_timeout = absl::Milliseconds(300);
  ranks.nccl().Inject({.call = NcclCall::kInit, .rank = 1, .what = NcclFault::kStubborn});
  std::vector<NcclRanks::Formed> formed(3);
  std::vector<absl::Time> ended(3);
  const absl::Time start = absl::Now();
  std::thread forming([&] {
    RunRanks(3, [&](int rank) {
      formed[static_cast<size_t>(rank)] = ranks.Form("data:0", rank);
      ended[static_cast<size_t>(rank)] = absl::Now();
    });
  });
  EXPECT_TRUE(ranks.AwaitExit(1, absl::Seconds(10)));
  EXPECT_THAT(ranks.exit(1), HasSubstr("a call of NCCL has not returned"));
  ranks.nccl().Release();
  forming.join();
  ExpectAll(formed, absl::StatusCode::kDeadlineExceeded, "data:0 of epoch 5");
  for (const size_t rank : {0u, 2u}) {
    EXPECT_GE(ended[rank] - start, absl::Milliseconds(290));
    EXPECT_LT(ended[rank] - start, absl::Milliseconds(300) + kEndsWithin);
  }
  EXPECT_EQ(ranks.exit(0) + ranks.exit(2), "");
}

// F36: nor does a device that never clears the arena keep its process.
TEST(NcclFormation, ADeviceThatHangsEndsAtTheDeadlineAndItsProcessWithIt) {
  NcclRanks ranks(2);
  ranks.form().form_timeout = absl::Milliseconds(300);
  absl::Notification released;
  ranks.device(1).BeginStreamsWith([&] { released.WaitForNotification(); });
  std::vector<NcclRanks::Formed> formed;
  std::thread forming([&] { formed = ranks.FormAll("data:0"); });
  EXPECT_TRUE(ranks.AwaitExit(1, absl::Seconds(10)));
  EXPECT_THAT(ranks.exit(1), HasSubstr("work on the device goes on"));
  released.Notify();
  forming.join();
  EXPECT_EQ(formed[1].status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(formed[1].status().message()),
              AllOf(HasSubstr("rank 1 could not join data:0 of epoch 5 over NCCL"),
                    HasSubstr("device did not finish clearing the arena within"),
                    Not(HasSubstr("within 1m"))));
  EXPECT_EQ(ranks.exit(0), "");
}

TEST(NcclFormation, AbortEndsTheFormationOfAll) {
  NcclRanks ranks(2);
  ranks.nccl().Inject(
      {.call = NcclCall::kInit, .what = NcclFault::kDelay, .polls = 1 << 30, .times = 2});
  std::vector<NcclRanks::Formed> formed;
  std::thread forming([&] { formed = ranks.FormAll("data:0"); });
  while (ranks.nccl().calls(NcclCall::kInit) < 2) std::this_thread::yield();
  const absl::Time start = absl::Now();
  ranks.abort(0).Abort("epoch 5 is over");
  forming.join();
  EXPECT_LT(absl::Now() - start, kEndsWithin);
  ExpectAll(formed, absl::StatusCode::kAborted, "epoch 5 is over");
}

// F33: an abort may have looked for work of the device before; nobody would end what comes later.
TEST(NcclFormation, NothingIsEnqueuedBehindAnAbort) {
  NcclRanks ranks(2);
  ranks.nccl().WhenNextRegistered(1, [&] {
    ranks.epoch(1).Abort(absl::AbortedError("epoch 5 is over"));
    ranks.epoch(1).AwaitAborted();
  });
  const auto formed = ranks.FormAll("data:0");
  EXPECT_EQ(formed[1].status(), absl::AbortedError("epoch 5 is over"));
  EXPECT_EQ(ranks.device(1).enqueued(), 0);
}

TEST(NcclFormation, AnEpochThatHasEndedFormsNothing) {
  NcclRanks ranks(1);
  ranks.epoch(0).Abort(absl::AbortedError("over"));
  EXPECT_EQ(ranks.Form("data:0", 0).status(), absl::AbortedError("over"));
}

// F59
TEST(NcclFormation, MembersMustAgreeOnTheWayTheyReduce) {
  NcclRanks ranks(2);
  std::vector<NcclRanks::Formed> formed(2);
  RunRanks(2, [&](int rank) {
    NcclOptions options = ranks.options();
    options.reproducible = rank == 0;
    formed[static_cast<size_t>(rank)] = ranks.Form("data:0", rank, options);
  });
  for (const NcclRanks::Formed& member : formed) {
    EXPECT_EQ(member.status().code(), absl::StatusCode::kFailedPrecondition) << member.status();
    EXPECT_THAT(std::string(member.status().message()),
                AllOf(HasSubstr("the tree's reductions"), HasSubstr("NCCL's reductions")));
  }
}

TEST(NcclFormation, MembersThatDoNotComeAreNamed) {
  NcclRanks ranks(2);
  ranks.form().form_timeout = absl::Milliseconds(200);
  const auto formed = ranks.Form("data:0", 0);
  EXPECT_EQ(formed.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(formed.status().message()), HasSubstr("rank 1 of data:0 did not come"));
  EXPECT_EQ(LostMemberOf(formed.status()), 1);
}

}  // namespace
}  // namespace sherd
