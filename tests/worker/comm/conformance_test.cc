// What every Communicator does when nothing fails. One suite for all implementations.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "absl/synchronization/notification.h"
#include "communicator_kinds.h"
#include "reference_tree.h"

namespace sherd {
namespace {

constexpr std::array kWorlds = {1, 2, 3, 4, 5, 6, 7, 8};

class Conformance : public testing::TestWithParam<CommunicatorKind> {
 protected:
  // Calls `rank_main` for each rank of a new group; it ends with the group intact.
  void InGroup(int size, int64_t arena_bytes,
               const std::function<void(Communicator& comm)>& rank_main) {
    SCOPED_TRACE(testing::Message() << "world " << size);
    auto members = GetParam().form(size, {.arena_bytes = arena_bytes});
    RunRanks(size, [&](int rank) { rank_main(*members[static_cast<size_t>(rank)]); });
  }
};

INSTANTIATE_TEST_SUITE_P(, Conformance, testing::ValuesIn(ConformanceKinds()),
                         [](const auto& test) { return test.param.name; });

std::mt19937_64 RandomOf(int rank, int64_t salt) {
  return std::mt19937_64(static_cast<uint64_t>(rank * 1000003 + salt));
}

void Put(Communicator& comm, const Values& values, int64_t offset = 0) {
  if (!values.empty()) std::memcpy(comm.arena() + offset, values.data(), values.size());
}

Values Get(const std::byte* begin, int64_t bytes) {
  return bytes == 0 ? Values() : Values(begin, begin + bytes);
}

// Every rank's values, known to all: a pure function of rank and salt.
std::vector<Values> ValuesOfRanks(int ranks, DType dtype, int64_t elements, int64_t salt) {
  std::vector<Values> all;
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937_64 random = RandomOf(rank, salt);
    all.push_back(RandomValues(random, dtype, elements));
  }
  return all;
}

Values Concatenate(const std::vector<Values>& parts) {
  Values whole;
  for (const Values& part : parts) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

// Bit for bit, or within what rounding in another order makes of up to 32 values below 128.
void ExpectSum(const Values& sum, const Values& expected, DType dtype) {
  ASSERT_EQ(sum.size(), expected.size());
  if (testing::TestWithParam<CommunicatorKind>::GetParam().tree_bits) {
    EXPECT_EQ(sum, expected);
    return;
  }
  const float tolerance = 32 * 128 * (dtype == DType::kF32 ? 0x1p-22f : 0x1p-7f);
  const int64_t elements = static_cast<int64_t>(sum.size()) / SizeOf(dtype);
  for (int64_t i = 0; i < elements; ++i) {
    ASSERT_NEAR(ValueAt(sum, dtype, i), ValueAt(expected, dtype, i), tolerance);
  }
}

Values Slice(const Values& values, int64_t begin, int64_t bytes) {
  return Values(values.begin() + begin, values.begin() + begin + bytes);
}

TEST_P(Conformance, ArenasStartZeroedAndAligned) {
  for (const int64_t bytes : {0, 1, 100'001}) {
    InGroup(2, bytes, [&](Communicator& comm) {
      EXPECT_EQ(comm.size(), 2);
      EXPECT_EQ(comm.arena_bytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(comm.arena()) % 64, 0u);
      EXPECT_EQ(Get(comm.arena(), bytes), Values(static_cast<size_t>(bytes)));
      EXPECT_TRUE(comm.Wait(comm.Barrier()).ok());
    });
  }
}

TEST_P(Conformance, AllGatherPutsShardsInRankOrder) {
  for (const int64_t bytes : {0, 1, 7, 40'001}) {
    std::vector<Values> shards = ValuesOfRanks(8, DType::kBF16, bytes, bytes);
    for (Values& shard : shards) shard.resize(static_cast<size_t>(bytes));
    for (const int size : kWorlds) {
      const Values expected = Concatenate({shards.begin(), shards.begin() + size});
      InGroup(size, 50'000, [&](Communicator& comm) {
        const int64_t offset = 64 * comm.rank();  // members need not agree on it
        Put(comm, shards[static_cast<size_t>(comm.rank())], offset);
        Values gathered(static_cast<size_t>(bytes * comm.size()));
        ASSERT_TRUE(comm.Wait(comm.AllGather(comm.arena() + offset, gathered.data(), bytes)).ok());
        EXPECT_EQ(gathered, expected);
      });
    }
  }
}

TEST_P(Conformance, AllGatherWorksInPlace) {
  InGroup(3, 1 << 16, [](Communicator& comm) {
    constexpr int64_t kBytes = 2 * 333;
    const auto shards = ValuesOfRanks(3, DType::kBF16, 333, 1);
    Put(comm, shards[static_cast<size_t>(comm.rank())], comm.rank() * kBytes);
    ASSERT_TRUE(
        comm.Wait(comm.AllGather(comm.arena() + comm.rank() * kBytes, comm.arena(), kBytes)).ok());
    EXPECT_EQ(Get(comm.arena(), 3 * kBytes), Concatenate(shards));
  });
}

// One reduction, the same for all ranks: their inputs and the sum of the contributors'.
struct Reduction {
  DType dtype;
  int64_t elements;
  int contributors;
  std::vector<Values> inputs;
  Values sum;
};

// F12; non-contributors' inputs are never read.
TEST_P(Conformance, ReduceScatterFoldsContributorsByTheTree) {
  for (const int size : kWorlds) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t slice : {0, 1, 3, 4099}) {
        // Three calls into one accumulator: the sum is over all leaves of all calls.
        std::vector<Reduction> calls;
        std::vector<Values> leaves;
        for (const int contributors : {size, size / 2, std::max(1, size - 1)}) {
          auto inputs = ValuesOfRanks(size, dtype, size * slice, slice + contributors);
          leaves.insert(leaves.end(), inputs.begin(), inputs.begin() + contributors);
          calls.push_back({dtype, size * slice, contributors, std::move(inputs), {}});
        }
        const Values sum = ReferenceTree(dtype, size * slice).Sum(leaves);
        InGroup(size, 1 << 18, [&](Communicator& comm) {
          MemoryMeter meter;
          TreeAccumulator tree(meter, Pool::kGrads, slice, dtype, 3 * size);
          for (const Reduction& call : calls) {
            Put(comm, call.inputs[static_cast<size_t>(comm.rank())]);
            ASSERT_TRUE(comm.Wait(comm.ReduceScatter(comm.arena(), call.contributors, &tree)).ok());
          }
          EXPECT_EQ(tree.leaves(), static_cast<int64_t>(leaves.size()));
          const int64_t bytes = slice * SizeOf(dtype);
          ExpectSum(Get(static_cast<const std::byte*>(tree.Finish()), bytes),
                    Slice(sum, comm.rank() * bytes, bytes), dtype);
        });
      }
    }
  }
}

// Every segment by itself; what other ranks own stays as it was.
TEST_P(Conformance, ReduceScatterInPlaceSumsTheOwnPartOfEverySegment) {
  for (const int size : kWorlds) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t part : {0, 1, 3, 4099}) {
        const std::vector<int64_t> segments = {part * size, size, 2 * part * size};
        const int64_t elements = segments[0] + segments[1] + segments[2];
        for (const int contributors : {size, (size + 1) / 2, 0}) {
          const auto inputs = ValuesOfRanks(size, dtype, elements, part + contributors);
          const Values sum =
              ReferenceTree(dtype, elements).Sum({inputs.begin(), inputs.begin() + contributors});
          InGroup(size, 1 << 19, [&](Communicator& comm) {
            const Values& mine = inputs[static_cast<size_t>(comm.rank())];
            Put(comm, mine);
            ASSERT_TRUE(
                comm.Wait(comm.ReduceScatterInPlace(comm.arena(), segments, dtype, contributors))
                    .ok());
            int64_t begin = 0;
            for (const int64_t segment : segments) {
              const int64_t bytes = segment / size * SizeOf(dtype);
              for (int rank = 0; rank < size; ++rank, begin += bytes) {
                const Values here = Get(comm.arena() + begin, bytes);
                if (rank == comm.rank()) {
                  ExpectSum(here, Slice(sum, begin, bytes), dtype);
                } else {
                  EXPECT_EQ(here, Slice(mine, begin, bytes));
                }
              }
            }
          });
        }
      }
    }
  }
}

TEST_P(Conformance, AllReduceSumsContributorsByTheTreeOnEveryRank) {
  for (const int size : kWorlds) {
    std::vector<Reduction> calls;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t elements : {0, 1, 7, 20'001}) {
        for (const int contributors : {size, (size + 1) / 2, 0}) {
          auto inputs = ValuesOfRanks(size, dtype, elements, elements + contributors);
          const std::vector<Values> leaves(inputs.begin(), inputs.begin() + contributors);
          calls.push_back({dtype, elements, contributors, std::move(inputs),
                           ReferenceTree(dtype, elements).Sum(leaves)});
        }
      }
    }
    InGroup(size, 1 << 18, [&](Communicator& comm) {
      std::byte* const data = comm.arena() + 64 * comm.rank();  // members need not agree on it
      for (const Reduction& call : calls) {
        Put(comm, call.inputs[static_cast<size_t>(comm.rank())], 64 * comm.rank());
        ASSERT_TRUE(
            comm.Wait(comm.AllReduce(data, call.elements, call.dtype, call.contributors)).ok());
        ExpectSum(Get(data, call.elements * SizeOf(call.dtype)), call.sum, call.dtype);
      }
    });
  }
}

TEST_P(Conformance, AllReduceOfMegabytesHasTheBitsOfTheTree) {
  constexpr int64_t kElements = (3 << 20) / 4 + 5;
  const auto inputs = ValuesOfRanks(3, DType::kF32, kElements, 9);
  const Values sum = ReferenceTree(DType::kF32, kElements).Sum(inputs);
  InGroup(3, 4 << 20, [&](Communicator& comm) {
    // Again and again: what is in place of one must not pass for the next one's.
    for (int round = 0; round < 5; ++round) {
      Put(comm, inputs[static_cast<size_t>(comm.rank())]);
      ASSERT_TRUE(comm.Wait(comm.AllReduce(comm.arena(), kElements, DType::kF32, 3)).ok());
      ExpectSum(Get(comm.arena(), kElements * 4), sum, DType::kF32);
    }
  });
}

// design.md section 3: the worked example.
TEST_P(Conformance, ReducesTheWorkedExample) {
  InGroup(2, 4096, [](Communicator& comm) {
    auto* gradients = reinterpret_cast<float*>(comm.arena());
    const auto fill = [&] {
      gradients[0] = comm.rank() == 0 ? 1.0f : 2.0f;  // pre-scaled by the count of 2
      gradients[1] = comm.rank() == 0 ? 3.0f : 5.0f;
    };
    fill();
    MemoryMeter meter;
    TreeAccumulator tree(meter, Pool::kGrads, 1, DType::kF32, 2);
    ASSERT_TRUE(comm.Wait(comm.ReduceScatter(gradients, 2, &tree)).ok());
    EXPECT_EQ(*static_cast<const float*>(tree.Finish()), comm.rank() == 0 ? 3.0f : 8.0f);
    fill();
    ASSERT_TRUE(comm.Wait(comm.AllReduce(gradients, 2, DType::kF32, 2)).ok());
    EXPECT_EQ(gradients[0], 3.0f);
    EXPECT_EQ(gradients[1], 8.0f);
  });
}

TEST_P(Conformance, BroadcastGivesEveryRankTheRootsData) {
  for (const int64_t elements : {0, 1, 9'999}) {
    const std::vector<Values> data = ValuesOfRanks(8, DType::kF32, elements, elements);
    for (const int size : kWorlds) {
      InGroup(size, 1 << 16, [&](Communicator& comm) {
        for (int root = 0; root < size; ++root) {
          Put(comm, data[static_cast<size_t>(comm.rank())]);
          ASSERT_TRUE(comm.Wait(comm.Broadcast(comm.arena(), elements * 4, root)).ok());
          EXPECT_EQ(Get(comm.arena(), elements * 4), data[static_cast<size_t>(root)]);
        }
      });
    }
  }
}

TEST_P(Conformance, ExchangeCopiesRecordsWhenEnqueued) {
  for (const int size : kWorlds) {
    InGroup(size, 0, [size](Communicator& comm) {
      for (const int64_t bytes :
           {int64_t{0}, int64_t{1}, int64_t{24}, int64_t{Communicator::kMaxExchangeBytes}}) {
        Values records(static_cast<size_t>(size * bytes));
        Values expected;
        for (int rank = 0; rank < size; ++rank) {
          expected.insert(expected.end(), static_cast<size_t>(bytes), std::byte(rank + 1));
        }
        Values record(static_cast<size_t>(bytes), std::byte(comm.rank() + 1));
        const Ticket ticket = comm.Exchange(record.data(), records.data(), bytes);
        std::fill(record.begin(), record.end(), std::byte(0xee));
        ASSERT_TRUE(comm.Wait(ticket).ok());
        EXPECT_EQ(records, expected);
      }
    });
  }
}

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
