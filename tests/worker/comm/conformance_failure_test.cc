// How every Communicator ends when something fails. One suite for all implementations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "communicator_kinds.h"

namespace sherd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kEndsWithin = absl::Milliseconds(500);

class ConformanceFailure : public testing::TestWithParam<CommunicatorKind> {
 protected:
  std::vector<std::unique_ptr<Communicator>> Form(int size, GroupOptions options = {}) {
    return GetParam().form(size, options);
  }
};

INSTANTIATE_TEST_SUITE_P(, ConformanceFailure, testing::ValuesIn(ConformanceKinds()),
                         [](const auto& test) { return test.param.name; });

// F29, F23: all end at once, whatever they wait in.
TEST_P(ConformanceFailure, AbortEndsEveryRanksWaitWithinHalfASecond) {
  auto members = Form(4);
  std::atomic<int> waiting{0};
  std::atomic<int64_t> aborted{0};
  absl::Notification all_wait;
  RunRanks(4, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    ASSERT_TRUE(comm.Wait(comm.Barrier()).ok());
    if (rank == 0) {
      // Calls nothing, so the others wait for it.
      all_wait.WaitForNotification();
      aborted = absl::GetCurrentTimeNanos();
      members[3]->Abort("epoch 7 is over");
      return;
    }
    const Ticket first = comm.AllReduce(comm.arena(), 1000, DType::kF32, 4);
    const Ticket second = comm.Barrier();
    if (waiting.fetch_add(1) == 2) all_wait.Notify();
    const absl::Status status = comm.Wait(first);
    EXPECT_LT(absl::Nanoseconds(absl::GetCurrentTimeNanos() - aborted), kEndsWithin);
    EXPECT_EQ(status, absl::AbortedError(rank == 3 ? "epoch 7 is over"
                                                   : "rank 3 aborted: epoch 7 is over"));
    // Other operations, enqueued before or later, have the same end.
    EXPECT_EQ(comm.Wait(second), status);
    EXPECT_EQ(comm.Wait(comm.Barrier()), status);
    // The others may hear of it from each other.
    EXPECT_EQ(comm.ended_by() >= 0, rank != 3);
    EXPECT_NE(comm.ended_by(), rank);
  });
}

// F34: who waits can say for whom. Rank 2 takes part in nothing, as one that spins or is frozen.
TEST_P(ConformanceFailure, WhoWaitsNamesTheRankThatDoesNotCome) {
  auto members = Form(4);
  RunRanks(4, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    ASSERT_TRUE(comm.Wait(comm.Barrier()).ok());
    EXPECT_THAT(comm.missing(), testing::IsEmpty());
  });
  std::atomic<int> told{0};
  absl::Notification all_told;
  RunRanks(4, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    if (rank == 2) {
      all_told.WaitForNotification();
      EXPECT_THAT(comm.missing(), testing::IsEmpty());
      EXPECT_TRUE(comm.Wait(comm.AllReduce(comm.arena(), 1000, DType::kF32, 4)).ok());
      return;
    }
    const Ticket ticket = comm.AllReduce(comm.arena(), 1000, DType::kF32, 4);
    // At first others may be late, too.
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    const std::vector<int> absent = {2};
    while (comm.missing() != absent && absl::Now() < deadline) std::this_thread::yield();
    EXPECT_EQ(comm.missing(), absent);
    if (told.fetch_add(1) == 2) all_told.Notify();
    EXPECT_TRUE(comm.Wait(ticket).ok());
    EXPECT_THAT(comm.missing(), testing::IsEmpty());
  });
}

TEST_P(ConformanceFailure, EveryRankMayAbortItselfAtOnce) {
  auto members = Form(4);
  RunRanks(4, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    const Ticket ticket = rank == 0 ? 0 : comm.Barrier();
    comm.Abort("stop");
    comm.Abort("a second reason changes nothing");
    if (ticket != 0) {
      const absl::Status status = comm.Wait(ticket);
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
      EXPECT_THAT(std::string(status.message()), HasSubstr("stop"));
    }
  });
}

TEST_P(ConformanceFailure, AGroupOfOneAbortsToo) {
  auto members = Form(1);
  EXPECT_TRUE(members[0]->Wait(members[0]->Barrier()).ok());
  members[0]->Abort("enough");
  EXPECT_EQ(members[0]->Wait(members[0]->Barrier()), absl::AbortedError("enough"));
}

// F34, F59: a mismatch is told on every rank, with rank and both calls.
TEST_P(ConformanceFailure, MismatchedCallsEndEveryRankNamingRankAndOperation) {
  const std::vector<std::function<Ticket(Communicator&)>> wrong_calls = {
      [](Communicator& comm) { return comm.Barrier(); },
      [](Communicator& comm) { return comm.AllReduce(comm.arena(), 101, DType::kF32, 3); },
      [](Communicator& comm) { return comm.AllReduce(comm.arena(), 100, DType::kBF16, 3); },
      [](Communicator& comm) { return comm.AllReduce(comm.arena(), 100, DType::kF32, 2); },
      [](Communicator& comm) { return comm.Broadcast(comm.arena(), 100, 1); },
  };
  for (const auto& wrong_call : wrong_calls) {
    auto members = Form(3);
    // Everyone has left the barrier before anyone can fail.
    RunRanks(3, [&](int rank) {
      Communicator& comm = *members[static_cast<size_t>(rank)];
      ASSERT_TRUE(comm.Wait(comm.Barrier()).ok());
    });
    RunRanks(3, [&](int rank) {
      Communicator& comm = *members[static_cast<size_t>(rank)];
      const Ticket ticket =
          rank == 1 ? wrong_call(comm) : comm.AllReduce(comm.arena(), 100, DType::kF32, 3);
      const absl::Status status = comm.Wait(ticket);
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("rank 1"), HasSubstr("all_reduce #2 of 100 fp32 from 3")));
    });
  }
}

TEST_P(ConformanceFailure, TreeAccumulatorsMustAgreeOnSizes) {
  auto members = Form(2);
  RunRanks(2, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    MemoryMeter meter;
    TreeAccumulator tree(meter, Pool::kGrads, rank == 0 ? 10 : 11, DType::kF32, 2);
    const absl::Status status = comm.Wait(comm.ReduceScatter(comm.arena(), 2, &tree));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("reduce_scatter #1 of 10"), HasSubstr("reduce_scatter #1 of 11")));
  });
}

// F33, F34, F35: a member that never calls is named, with the operation.
TEST_P(ConformanceFailure, AWaitHasADeadlineThatNamesTheMissingRanks) {
  auto members = Form(4, {.operation_timeout = absl::Milliseconds(100)});
  RunRanks(4, [&](int rank) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    if (rank == 1 || rank == 3) return;
    const absl::Status status = comm.Wait(comm.Broadcast(comm.arena(), 12, 0));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(status.message(),
              "broadcast #1 of 12 bytes from rank 0: ranks 1, 3 did not arrive within 100ms");
  });
  // Those that come too late have the same end.
  for (const int rank : {1, 3}) {
    Communicator& comm = *members[static_cast<size_t>(rank)];
    const absl::Status status = comm.Wait(comm.Broadcast(comm.arena(), 12, 0));
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  }
}

// F22
TEST_P(ConformanceFailure, AMemberThatLeavesEarlyIsNamed) {
  auto members = Form(3);
  // What ends one of them ends the others' waits, that for the first operation too.
  std::barrier first_is_over(3);
  RunRanks(3, [&](int rank) {
    auto& comm = members[static_cast<size_t>(rank)];
    EXPECT_TRUE(comm->Wait(comm->Barrier()).ok());
    first_is_over.arrive_and_wait();
    if (rank == 2) {
      comm.reset();
      return;
    }
    const absl::Time start = absl::Now();
    const absl::Status status = comm->Wait(comm->AllReduce(comm->arena(), 5, DType::kF32, 3));
    EXPECT_LT(absl::Now() - start, kEndsWithin);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 left before all_reduce #2"));
  });
}

TEST_P(ConformanceFailure, LeavingAfterTheLastOperationDisturbsNobody) {
  for (int round = 0; round < 20; ++round) {
    auto members = Form(4);
    RunRanks(4, [&](int rank) {
      auto& comm = members[static_cast<size_t>(rank)];
      auto* value = reinterpret_cast<float*>(comm->arena());
      *value = 1;
      EXPECT_TRUE(comm->Wait(comm->AllReduce(value, 1, DType::kF32, 4)).ok());
      EXPECT_EQ(*value, 4);
      comm.reset();
    });
  }
}

// F29: a communicator may be destroyed in the middle of things.
TEST_P(ConformanceFailure, DestructionEndsOperationsThatNobodyWaitsFor) {
  auto members = Form(3);
  members[0]->Barrier();
  members[0]->AllReduce(members[0]->arena(), 1000, DType::kF32, 3);
  const absl::Time start = absl::Now();
  members[0].reset();
  EXPECT_LT(absl::Now() - start, kEndsWithin);
  for (const size_t rank : {1u, 2u}) {
    const absl::Status status = members[rank]->Wait(members[rank]->Barrier());
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0"));
  }
}

TEST_P(ConformanceFailure, AbortInTheMiddleOfTrafficStopsAllRanks) {
  for (int round = 0; round < 10; ++round) {
    auto members = Form(4);
    std::atomic<int> operations{0};
    RunRanks(4, [&](int rank) {
      Communicator& comm = *members[static_cast<size_t>(rank)];
      absl::Status status;
      while (status.ok()) {
        status = comm.Wait(comm.AllReduce(comm.arena(), 20'000, DType::kF32, 4));
        // Whoever is at this point first.
        if (operations.fetch_add(1) == 7 * round) comm.Abort("now");
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
      EXPECT_THAT(std::string(status.message()), HasSubstr("now"));
    });
  }
}

}  // namespace
}  // namespace sherd
