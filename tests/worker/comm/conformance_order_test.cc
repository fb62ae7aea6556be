// In which order every Communicator's operations run, and who waits for whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "conformance.h"
#include "reference_tree.h"

namespace sherd {
namespace {

TEST_P(Conformance, NobodyLeavesABarrierBeforeAllHaveEntered) {
  std::atomic<int> entered{0};
  InGroup(5, 0, [&](Communicator& comm) {
    for (int round = 1; round <= 20; ++round) {
      entered.fetch_add(1);
      ASSERT_TRUE(comm.Wait(comm.Barrier()).ok());
      EXPECT_GE(entered.load(), 5 * round);
    }
  });
}

TEST_P(Conformance, EnqueuedOperationsRunInOrderWithoutWaiting) {
  for (const int size : {1, 2, 4}) {
    InGroup(size, 1 << 16, [size](Communicator& comm) {
      // Each round doubles, adds and spreads what the round before left: order shows in the sum.
      constexpr int kRounds = 50;
      auto* value = reinterpret_cast<float*>(comm.arena());
      value[0] = static_cast<float>(comm.rank() + 1);
      std::vector<Values> gathered(kRounds, Values(static_cast<size_t>(4 * size)));
      std::vector<Ticket> tickets;
      for (int round = 0; round < kRounds; ++round) {
        comm.AllReduce(value, 1, DType::kF32, round < 10 ? size : 1);
        comm.Broadcast(value, 4, round % size);
        comm.Barrier();
        tickets.push_back(comm.AllGather(value, gathered[static_cast<size_t>(round)].data(), 4));
      }
      EXPECT_TRUE(std::is_sorted(tickets.begin(), tickets.end()));
      ASSERT_TRUE(comm.Wait(tickets.back()).ok());
      float expected = static_cast<float>(size * (size + 1) / 2);
      for (int round = 0; round < kRounds; ++round) {
        if (round > 0 && round < 10) expected *= static_cast<float>(size);
        for (int rank = 0; rank < size; ++rank) {
          EXPECT_EQ(ValueAt(gathered[static_cast<size_t>(round)], DType::kF32, rank), expected);
        }
      }
      for (const Ticket ticket : tickets) EXPECT_TRUE(comm.Wait(ticket).ok());
    });
  }
}

// F9: who starts a collective goes on computing, though the others have not come yet.
TEST_P(Conformance, StartingACollectiveWaitsForNobody) {
  absl::Notification started;
  InGroup(3, 1 << 16, [&](Communicator& comm) {
    if (comm.rank() > 0) {
      ASSERT_TRUE(started.WaitForNotificationWithTimeout(absl::Seconds(5)));
    }
    MemoryMeter meter;
    TreeAccumulator tree(meter, Pool::kGrads, 10, DType::kF32, 3);
    Values gathered(3 * 40);
    const Values record(8);
    Values records(3 * 8);
    comm.AllGather(comm.arena(), gathered.data(), 40);
    comm.ReduceScatter(comm.arena(), 3, &tree);
    comm.ReduceScatterInPlace(comm.arena(), {30}, DType::kF32, 3);
    comm.AllReduce(comm.arena(), 30, DType::kF32, 3);
    comm.Broadcast(comm.arena(), 40, 0);
    comm.Exchange(record.data(), records.data(), 8);
    const Ticket last = comm.Barrier();
    if (comm.rank() == 0) started.Notify();
    ASSERT_TRUE(comm.Wait(last).ok());
  });
}

// F8: a buffer is free for its owner when Wait returns, however slow the others are.
TEST_P(Conformance, BuffersMayBeRewrittenAsSoonAsWaitReturns) {
  InGroup(4, 1 << 20, [](Communicator& comm) {
    constexpr int64_t kElements = 4 * 5000;
    auto* data = reinterpret_cast<float*>(comm.arena());
    std::vector<float> gathered(4 * kElements);
    for (int round = 1; round <= 30; ++round) {
      std::fill_n(data, kElements, static_cast<float>(round));
      ASSERT_TRUE(comm.Wait(comm.AllGather(data, gathered.data(), kElements * 4)).ok());
      std::fill_n(data, kElements, static_cast<float>(2 * round));
      EXPECT_EQ(std::count(gathered.begin(), gathered.end(), static_cast<float>(round)),
                4 * kElements);
      MemoryMeter meter;
      TreeAccumulator tree(meter, Pool::kGrads, kElements / 4, DType::kF32, 4);
      ASSERT_TRUE(comm.Wait(comm.ReduceScatter(data, 4, &tree)).ok());
      std::fill_n(data, kElements, static_cast<float>(3 * round));
      const auto* sum = static_cast<const float*>(tree.Finish());
      EXPECT_EQ(std::count(sum, sum + kElements / 4, static_cast<float>(8 * round)), kElements / 4);
      ASSERT_TRUE(comm.Wait(comm.AllReduce(data, kElements, DType::kF32, 4)).ok());
      EXPECT_EQ(std::count(data, data + kElements, static_cast<float>(12 * round)), kElements);
    }
  });
}

}  // namespace
}  // namespace sherd
