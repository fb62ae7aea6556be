#include "plan/schedule.h"

#include <gtest/gtest.h>

#include <set>

namespace sherd {
namespace {

v1::TrainSpec Train(int64_t global_batch, int64_t micro_batch) {
  v1::TrainSpec train;
  train.set_global_batch(global_batch);
  train.set_micro_batch(micro_batch);
  return train;
}

// F35: every micro-batch is computed exactly once at any world size, and ranks without one still
// know the round.
TEST(MicroBatches, CoverEveryIndexExactlyOnceAtAnyWorldSize) {
  for (const MicroBatchOrder order :
       {MicroBatchOrder::kConsecutive, MicroBatchOrder::kRoundRobin}) {
    for (int64_t count = 1; count <= 20; ++count) {
      for (int degree = 1; degree <= 9; ++degree) {
        const MicroBatches split = SplitMicroBatches(Train(3 * count, 3), degree, order);
        ASSERT_EQ(split.count, count);
        std::multiset<int64_t> seen;
        for (int64_t round = 0; round < split.rounds; ++round) {
          for (int rank = 0; rank < degree; ++rank) {
            const int64_t index = split.Index(rank, round);
            EXPECT_EQ(index >= 0, order == MicroBatchOrder::kConsecutive
                                      ? rank * split.rounds + round < count
                                      : rank < split.ContributorsInRound(round));
            if (index >= 0) seen.insert(index);
          }
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(count));
        EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), static_cast<size_t>(count));
      }
    }
  }
}

TEST(MicroBatches, ARankTakesConsecutiveOnesOrARoundDoes) {
  const MicroBatches own = SplitMicroBatches(Train(8, 1), 4, MicroBatchOrder::kConsecutive);
  EXPECT_EQ(own.Index(1, 0), 2);
  EXPECT_EQ(own.Index(1, 1), 3);
  const MicroBatches shared = SplitMicroBatches(Train(8, 1), 4, MicroBatchOrder::kRoundRobin);
  EXPECT_EQ(shared.Index(1, 0), 1);
  EXPECT_EQ(shared.Index(1, 1), 5);
}

TEST(LearningRate, WarmsUpThenFollowsTheCosine) {
  v1::TrainSpec train = Train(1, 1);
  train.set_steps(110);
  train.mutable_optimizer()->set_lr(1.0);
  train.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_COSINE);
  train.mutable_schedule()->set_warmup(10);
  train.mutable_schedule()->set_min_lr(0.1);
  EXPECT_DOUBLE_EQ(LearningRate(train, 1), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(train, 10), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(train, 60), 0.55);
  EXPECT_DOUBLE_EQ(LearningRate(train, 110), 0.1);
}

TEST(LearningRate, ConstantStaysAtThePeakAfterWarmUp) {
  v1::TrainSpec train = Train(1, 1);
  train.set_steps(10);
  train.mutable_optimizer()->set_lr(0.5);
  train.mutable_schedule()->set_kind(v1::SCHEDULE_KIND_CONSTANT);
  train.mutable_schedule()->set_warmup(2);
  EXPECT_DOUBLE_EQ(LearningRate(train, 1), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(train, 9), 0.5);
}

}  // namespace
}  // namespace sherd
