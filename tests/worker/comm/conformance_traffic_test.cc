// What every Communicator counts of what it sends, to the byte.
#include <gtest/gtest.h>

#include <cstdint>

#include "conformance.h"
#include "reference_tree.h"

namespace sherd {
namespace {

struct Traffic {
  int64_t bytes = 0;
  int64_t messages = 0;
};
void ExpectTraffic(const Communicator& comm, Collective op, Traffic expected, int64_t calls) {
  const WireCount count = comm.counts()[static_cast<size_t>(op)];
  EXPECT_EQ(count.bytes, expected.bytes) << NameOf(op) << " of rank " << comm.rank();
  EXPECT_EQ(count.messages, expected.messages) << NameOf(op) << " of rank " << comm.rank();
  EXPECT_EQ(count.calls, calls) << NameOf(op);
  EXPECT_GT(count.seconds, 0);
}

TEST_P(Conformance, CountsEveryByteThatPeersTake) {
  for (const int size : kWorlds) {
    InGroup(size, 1 << 16, [size](Communicator& comm) {
      const int64_t n = size;
      const int64_t others = n - 1;
      const bool contributes = comm.rank() < (size + 1) / 2;
      Values out(static_cast<size_t>(n * 1000));
      Values record(24);
      Values records(static_cast<size_t>(n * 24));
      comm.AllGather(comm.arena(), out.data(), 1000);
      comm.AllGather(comm.arena(), out.data(), 0);
      MemoryMeter meter;
      TreeAccumulator tree(meter, Pool::kGrads, 101, DType::kBF16, 2 * size);
      comm.ReduceScatter(comm.arena(), size, &tree);
      comm.ReduceScatter(comm.arena(), (size + 1) / 2, &tree);
      comm.Broadcast(comm.arena(), 77, size - 1);
      comm.Exchange(record.data(), records.data(), 24);
      ASSERT_TRUE(comm.Wait(comm.Barrier()).ok());
      ExpectTraffic(comm, Collective::kAllGather, {others * 1000, others}, 2);
      const int64_t reductions = contributes ? 2 : 1;
      ExpectTraffic(comm, Collective::kReduceScatter,
                    {reductions * others * 101 * 2, reductions * others}, 2);
      const bool root = comm.rank() == size - 1;
      ExpectTraffic(comm, Collective::kBroadcast, {root ? others * 77 : 0, root ? others : 0}, 1);
      ExpectTraffic(comm, Collective::kExchange, {others * 24, others}, 1);
      ExpectTraffic(comm, Collective::kBarrier, {0, 0}, 1);
    });
  }
}

// Rank p reduces the elements [p·E/n, (p+1)·E/n), rounded down, and sends them to all; a
// contributor sends the rest of its own to those that reduce it. A whole reduction sends 2(n−1)·E
// in all.
TEST_P(Conformance, CountsAllReduceToTheByte) {
  for (const int size : kWorlds) {
    InGroup(size, 1 << 16, [size](Communicator& comm) {
      const int64_t n = size;
      const int64_t others = n - 1;
      const int64_t elements = 1003;
      const int64_t rank = comm.rank();
      const int64_t chunk = (rank + 1) * elements / n - rank * elements / n;
      const int contributors = (size + 1) / 2;
      comm.AllReduce(comm.arena(), elements, DType::kF32, size);
      ASSERT_TRUE(
          comm.Wait(comm.AllReduce(comm.arena(), elements, DType::kF32, contributors)).ok());
      const int64_t reductions = rank < contributors ? 2 : 1;
      ExpectTraffic(
          comm, Collective::kAllReduce,
          {4 * (reductions * (elements - chunk) + 2 * others * chunk), (reductions + 2) * others},
          2);
    });
  }
}

}  // namespace
}  // namespace sherd
