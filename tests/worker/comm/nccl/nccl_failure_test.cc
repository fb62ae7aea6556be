// How operations over NCCL end when NCCL, the device or a member fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "absl/time/clock.h"
#include "nccl_ranks.h"
#include "tests/worker/comm/communicator_kinds.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr absl::Duration kEndsWithin = absl::Milliseconds(500);

Ticket Reduce(Communicator& comm) {
  return comm.AllReduce(comm.arena(), 1000, DType::kF32, comm.size());
}

// Keeps a device's computation from going on.
class HeldComputation {
 public:
  explicit HeldComputation(ThreadDevice& device) {
    device.compute().Enqueue([go = go_] {
      while (!go->load()) std::this_thread::yield();
    });
  }
  ~HeldComputation() { Release(); }
  void Release() { go_->store(true); }

 private:
  std::shared_ptr<std::atomic<bool>> go_ = std::make_shared<std::atomic<bool>>(false);
};

// F21, F34: what NCCL finds out is asked for while the device works.
TEST(NcclFailure, AnAsynchronousErrorEndsEveryRankNamingRankAndOperation) {
  NcclRanks ranks(3);
  auto members = ranks.MustForm();
  ranks.nccl().Inject({.call = NcclCall::kKernel, .rank = 2});
  ranks.nccl().Inject({.call = NcclCall::kAsyncError,
                       .rank = 1,
                       .what = NcclFault::kFail,
                       .result = NcclResult::kSystemError});
  RunRanks(3, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    const absl::Status status = comm.Wait(Reduce(comm));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("all_reduce #1 of 1000 fp32"), HasSubstr("on rank 1"),
                      HasSubstr("scripted error 2")));
    // The others may hear of it from each other.
    EXPECT_EQ(comm.ended_by() >= 0, rank != 1);
  });
}

TEST(NcclFailure, ARemoteErrorIsUnavailable) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  ranks.nccl().Inject({.call = NcclCall::kGroupEnd,
                       .rank = 0,
                       .what = NcclFault::kFail,
                       .result = NcclResult::kRemoteError});
  RunRanks(2, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    EXPECT_EQ(comm.Wait(Reduce(comm)).code(), absl::StatusCode::kUnavailable);
  });
}

// F33
TEST(NcclFailure, ACollectiveThatHangsEndsAtItsDeadlineOnEveryRank) {
  NcclRanks ranks(3);
  ranks.form().operation_timeout = absl::Milliseconds(200);
  auto members = ranks.MustForm();
  ranks.nccl().Inject({.call = NcclCall::kKernel, .rank = 2});
  const absl::Time start = absl::Now();
  RunRanks(3, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    const absl::Status status = comm.Wait(Reduce(comm));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("all_reduce #1 of 1000 fp32"),
                      HasSubstr("did not finish it, though all ranks have come, within 200ms")));
  });
  EXPECT_LT(absl::Now() - start, absl::Milliseconds(300) + 2 * kEndsWithin);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(ranks.exit(rank), "");
}

// F29: the buffers are the caller's when Wait returns, though a kernel hung.
TEST(NcclFailure, AbortEndsACollectiveThatHangs) {
  NcclRanks ranks(3);
  auto members = ranks.MustForm();
  ranks.nccl().Inject({.call = NcclCall::kKernel, .rank = 2});
  std::vector<Ticket> tickets;
  for (auto& member : members) tickets.push_back(Reduce(*member));
  ASSERT_TRUE(ranks.nccl().AwaitHang(absl::Seconds(10)));
  const absl::Time start = absl::Now();
  members[0]->Abort("epoch 5 is over");
  RunRanks(3, [&](int rank) {
    const size_t at = static_cast<size_t>(rank);
    EXPECT_EQ(
        members[at]->Wait(tickets[at]),
        absl::AbortedError(rank == 0 ? "epoch 5 is over" : "rank 0 aborted: epoch 5 is over"));
  });
  EXPECT_LT(absl::Now() - start, kEndsWithin);
  EXPECT_EQ(ranks.nccl().live_comms(), 0);
}

TEST(NcclFailure, AbortEndsALaunchThatHangs) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  ranks.nccl().Inject({.call = NcclCall::kGroupEnd, .rank = 1});
  const std::vector<Ticket> tickets = {Reduce(*members[0]), Reduce(*members[1])};
  ASSERT_TRUE(ranks.nccl().AwaitHang(absl::Seconds(10)));
  const absl::Time start = absl::Now();
  members[1]->Abort("enough");
  RunRanks(2, [&](int rank) {
    const size_t at = static_cast<size_t>(rank);
    EXPECT_EQ(members[at]->Wait(tickets[at]).code(), absl::StatusCode::kAborted);
  });
  EXPECT_LT(absl::Now() - start, kEndsWithin);
  EXPECT_EQ(ranks.exit(1), "");
}

TEST(NcclFailure, AbortEndsALaunchThatStaysInProgress) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  ranks.nccl().Inject(
      {.call = NcclCall::kGroupEnd, .rank = 1, .what = NcclFault::kDelay, .polls = 1 << 30});
  const std::vector<Ticket> tickets = {Reduce(*members[0]), Reduce(*members[1])};
  while (ranks.nccl().calls(NcclCall::kGroupEnd) < 2) std::this_thread::yield();
  members[0]->Abort("enough");
  RunRanks(2, [&](int rank) {
    const size_t at = static_cast<size_t>(rank);
    EXPECT_EQ(members[at]->Wait(tickets[at]).code(), absl::StatusCode::kAborted);
  });
}

// F22: the epoch's other groups end with it, inside the same abort.
TEST(NcclFailure, WhatEndsOneGroupEndsAllOfTheEpoch) {
  NcclRanks ranks(2);
  auto data = ranks.MustForm("data:0");
  auto tensor = ranks.MustForm("tensor:0");
  // The one waits on the device, the other on the host for the other rank.
  ranks.nccl().Inject({.call = NcclCall::kKernel, .rank = 0});
  Reduce(*data[0]);
  const Ticket waiting = Reduce(*tensor[0]);
  Reduce(*data[1]);
  ASSERT_TRUE(ranks.nccl().AwaitHang(absl::Seconds(10)));
  const absl::Time start = absl::Now();
  data[0]->Abort("enough");
  // From the own epoch, or from the other rank, which may have heard of it before.
  const absl::Status ended = tensor[0]->Wait(waiting);
  EXPECT_EQ(ended.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(ended.message()), testing::EndsWith("enough"));
  EXPECT_LT(absl::Now() - start, kEndsWithin);
  EXPECT_EQ(tensor[1]->Wait(Reduce(*tensor[1])).code(), absl::StatusCode::kAborted);
  data.clear();
  tensor.clear();
  EXPECT_THAT(ranks.nccl().abort_groups(),
              ElementsAre(UnorderedElementsAre("data:0 of epoch 5", "tensor:0 of epoch 5"),
                          UnorderedElementsAre("data:0 of epoch 5", "tensor:0 of epoch 5")));
}

// F8
TEST(NcclFailure, AnOperationReadsWhatWasEnqueuedOnTheComputeStreamBeforeIt) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  HeldComputation held(ranks.device(1));
  RunRanks(2, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    auto* const value = reinterpret_cast<float*>(comm.arena());
    ranks.device(rank).compute().Enqueue([=] { *value = static_cast<float>(rank + 1); });
    const Ticket ticket = comm.AllReduce(value, 1, DType::kF32, 2);
    if (rank == 1) held.Release();
    ASSERT_TRUE(comm.Wait(ticket).ok());
    EXPECT_EQ(*value, 3.0f);
  });
}

// F33: an abort may have looked for work of the device before; nobody would end what comes later.
TEST(NcclFailure, NothingIsEnqueuedBehindAnAbort) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  const int enqueued = ranks.device(1).enqueued();
  ranks.device(1).WhenNextPassed([&] {
    ranks.epoch(1).Abort(absl::AbortedError("enough"));
    ranks.epoch(1).AwaitAborted();
  });
  RunRanks(2, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    const absl::Status status = comm.Wait(Reduce(comm));
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("enough"));
  });
  EXPECT_EQ(ranks.device(1).enqueued(), enqueued);
}

// F34: it is not the network that hangs, and not the others.
TEST(NcclFailure, ADeviceThatHangsBeforeAnOperationIsNamed) {
  NcclRanks ranks(2);
  ranks.form().operation_timeout = absl::Milliseconds(200);
  auto members = ranks.MustForm();
  const HeldComputation held(ranks.device(1));
  RunRanks(2, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    const absl::Status status = comm.Wait(Reduce(comm));
    EXPECT_EQ(status, absl::DeadlineExceededError(
                          "all_reduce #1 of 1000 fp32 from 2 contributors: rank 1's device did not "
                          "finish what comes before it within 200ms"));
  });
}

// Much may be enqueued before an operation; an abort need not wait for it.
TEST(NcclFailure, AbortLeavesNothingBehindAComputationThatTakesLong) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  const HeldComputation held(ranks.device(1));
  const std::vector<Ticket> tickets = {Reduce(*members[0]), Reduce(*members[1])};
  members[0]->Abort("enough");
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(members[rank]->Wait(tickets[rank]).code(), absl::StatusCode::kAborted);
  }
  members.clear();
  EXPECT_EQ(ranks.exit(0) + ranks.exit(1), "");
}

TEST(NcclFailure, AnErrorOfTheDeviceEndsEveryRank) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  ranks.device(1).last_stream().Fail("cudaMemcpyAsync: unspecified launch failure");
  RunRanks(2, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    const absl::Status status = comm.Wait(Reduce(comm));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("on rank 1"), HasSubstr("cudaMemcpyAsync")));
  });
}

// Waiting for a late member is no time of the device.
TEST(NcclFailure, SecondsAreTheDevices) {
  NcclRanks ranks(2);
  auto members = ranks.MustForm();
  const Ticket ticket = Reduce(*members[0]);
  while (members[0]->missing() != std::vector<int>{1}) std::this_thread::yield();
  const absl::Time late = absl::Now();
  ASSERT_TRUE(members[1]->Wait(Reduce(*members[1])).ok());
  ASSERT_TRUE(members[0]->Wait(ticket).ok());
  const double seconds = members[0]->counts()[static_cast<size_t>(Collective::kAllReduce)].seconds;
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, absl::ToDoubleSeconds(absl::Now() - late));
}

}  // namespace
}  // namespace sherd
