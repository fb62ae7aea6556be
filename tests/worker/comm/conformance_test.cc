// What every Communicator's collectives give when nothing fails. One suite for all implementations.
#include "conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "reference_tree.h"

namespace sherd {
namespace {

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

}  // namespace
}  // namespace sherd
