// What a device with memory of its own adds to the ways in which a communicator ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "communicator_kinds.h"
#include "tests/support/separate_device.h"
#include "worker/comm/staged_communicator.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kEndsWithin = absl::Milliseconds(500);
constexpr int64_t kArenaBytes = 1 << 16;

// A device for each member.
class Staged : public testing::TestWithParam<CommunicatorKind> {
 protected:
  using Members = std::vector<std::unique_ptr<Communicator>>;

  Members Form(int64_t arena_bytes, absl::Duration operation_timeout) {
    Members members = GetParam().form(2, {.arena_bytes = arena_bytes});
    for (size_t rank = 0; rank < members.size(); ++rank) {
      members[rank] = *StagedCommunicator::Make(
          std::move(members[rank]), devices_[rank],
          {.operation_timeout = operation_timeout, .gathered_bytes = 2 * kArenaBytes});
    }
    return members;
  }

  // Until it is rank 1 alone that rank 0 waits for.
  static void AwaitLastToCome(const Communicator& first) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    const std::vector<int> absent = {1};
    while (first.missing() != absent && absl::Now() < deadline) std::this_thread::yield();
    EXPECT_EQ(first.missing(), absent);
  }

  SeparateDevice devices_[2];
};

INSTANTIATE_TEST_SUITE_P(, Staged, testing::ValuesIn(AllCommunicatorKinds()),
                         [](const auto& test) { return test.param.name; });

// F29, F33: what was enqueued on a device before an operation may never end.
TEST_P(Staged, AbortEndsTheWaitForADeviceThatHangs) {
  Members members = Form(kArenaBytes, absl::Minutes(10));
  devices_[1].Hang(true);
  std::vector<std::byte> gathered(2 * 100);
  std::vector<Ticket> tickets;
  for (const auto& member : members) {
    tickets.push_back(member->AllGather(member->arena(), gathered.data(), 100));
  }
  AwaitLastToCome(*members[0]);
  const absl::Time start = absl::Now();
  members[1]->Abort("epoch 7 is over");
  EXPECT_EQ(members[1]->Wait(tickets[1]), absl::AbortedError("epoch 7 is over"));
  EXPECT_EQ(members[0]->Wait(tickets[0]), absl::AbortedError("rank 1 aborted: epoch 7 is over"));
  EXPECT_LT(absl::Now() - start, kEndsWithin);
}

// And what ends the others ends the wait, too.
TEST_P(Staged, AnAbortOfAnotherEndsTheWaitForADeviceThatHangs) {
  Members members = Form(kArenaBytes, absl::Minutes(10));
  devices_[1].Hang(true);
  const Ticket barrier = members[1]->Barrier();
  const absl::Time start = absl::Now();
  members[0]->Abort("stop");
  EXPECT_EQ(members[1]->Wait(barrier), absl::AbortedError("rank 0 aborted: stop"));
  EXPECT_EQ(members[1]->ended_by(), 0);
  EXPECT_LT(absl::Now() - start, kEndsWithin);
}

// F34
TEST_P(Staged, ADeviceThatHangsIsNamedWhenItsTimeIsOver) {
  Members members = Form(kArenaBytes, absl::Milliseconds(100));
  devices_[1].Hang(true);
  const Ticket others = members[0]->AllReduce(members[0]->arena(), 10, DType::kF32, 2);
  const Ticket own = members[1]->AllReduce(members[1]->arena(), 10, DType::kF32, 2);
  const absl::Status late = members[1]->Wait(own);
  EXPECT_EQ(late, absl::DeadlineExceededError("all_reduce: rank 1's device did not finish what "
                                              "comes before it within 100ms"));
  EXPECT_THAT(std::string(members[0]->Wait(others).message()),
              HasSubstr(std::string(late.message())));
  EXPECT_EQ(members[0]->ended_by(), 1);
}

TEST_P(Staged, AnOperationWaitsForWhatComesBeforeIt) {
  Members members = Form(kArenaBytes, absl::Minutes(10));
  devices_[1].Hang(true);
  std::vector<Ticket> tickets;
  for (const auto& member : members) tickets.push_back(member->Barrier());
  AwaitLastToCome(*members[0]);
  devices_[1].Hang(false);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(members[rank]->Wait(tickets[rank]).ok());
  }
}

// F29: no operation holds an abort up for longer than a piece takes.
TEST_P(Staged, AbortEndsCopiesToAndFromADevice) {
  for (const bool in : {false, true}) {
    Members members = Form(3 * StagedCommunicator::kPieceBytes, absl::Minutes(10));
    Communicator& root = *members[0];
    Communicator& other = *members[1];
    Communicator& aborted = in ? other : root;
    const int64_t copied = devices_[0].bytes_out() + devices_[1].bytes_in();
    devices_[in ? 1 : 0].BeforeCopies([&] { aborted.Abort("now"); });
    const Ticket sent = root.Broadcast(root.arena(), root.arena_bytes(), 0);
    const Ticket received = other.Broadcast(other.arena(), other.arena_bytes(), 0);
    EXPECT_EQ(aborted.Wait(in ? received : sent), absl::AbortedError("now"));
    members.clear();
    EXPECT_EQ(devices_[0].bytes_out() + devices_[1].bytes_in() - copied,
              StagedCommunicator::kPieceBytes * (in ? 4 : 1));
    devices_[in ? 1 : 0].BeforeCopies(nullptr);
  }
}

// F22, F34
TEST_P(Staged, WhoseDeviceHasNoMemoryForTheArenaTellsTheOthers) {
  Members members = GetParam().form(2, {.arena_bytes = kArenaBytes});
  SeparateDevice small(kArenaBytes - 1);
  auto first = StagedCommunicator::Make(std::move(members[0]), devices_[0], {});
  ASSERT_TRUE(first.ok());
  const auto second = StagedCommunicator::Make(std::move(members[1]), small, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr("65536 bytes for comm"), HasSubstr("cannot be had")));
  const absl::Status told = (*first)->Wait((*first)->Barrier());
  EXPECT_THAT(std::string(told.message()), HasSubstr(std::string(second.status().message())));
  EXPECT_EQ((*first)->ended_by(), 1);
}

// F16
TEST_P(Staged, WhatIsHeldOnTheHostCounts) {
  Members members = GetParam().form(1, {.arena_bytes = kArenaBytes});
  const int64_t hosts = members[0]->control_bytes();
  const auto staged =
      StagedCommunicator::Make(std::move(members[0]), devices_[0], {.gathered_bytes = 1000});
  ASSERT_TRUE(staged.ok());
  EXPECT_EQ((*staged)->control_bytes(), hosts + kArenaBytes + 1000);
}

}  // namespace
}  // namespace sherd
