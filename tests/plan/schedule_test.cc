#include "plan/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>
#include <vector>

namespace sherd {
namespace {

v1::TrainSpec Train(int64_t global_batch, int64_t micro_batch) {
  v1::TrainSpec train;
  train.set_global_batch(global_batch);
  train.set_micro_batch(micro_batch);
  return train;
}

// F35: every micro-batch is computed exactly once whatever the world and the replicas, and who has
// one in a round comes first among its replica.
TEST(MicroBatches, CoverEveryIndexExactlyOnceAtAnyWorldSize) {
  for (int64_t count = 1; count <= 20; ++count) {
    for (int degree = 1; degree <= 9; ++degree) {
      for (int replicas = 1; replicas <= degree; ++replicas) {
        if (degree % replicas != 0) continue;
        const MicroBatches split = SplitMicroBatches(count, degree, replicas);
        std::set<int64_t> seen;
        for (int64_t round = 0; round < split.rounds; ++round) {
          for (int rank = 0; rank < degree; ++rank) {
            const int replica = split.replica_of(rank);
            const int64_t index = split.Index(rank, round);
            EXPECT_EQ(index >= 0,
                      rank % split.replica_size() < split.ContributorsInRound(replica, round));
            if (index < 0) continue;
            EXPECT_TRUE(seen.insert(index).second);
            EXPECT_EQ(split.Of(index).rank, rank);
            EXPECT_EQ(split.Of(index).round, round);
            EXPECT_LT(replica, split.ContributingReplicas());
          }
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(count));
        EXPECT_EQ(*seen.rbegin(), count - 1);
      }
    }
  }
}

TEST(MicroBatches, AReplicaTakesConsecutiveOnes) {
  const MicroBatches own = SplitMicroBatches(8, 4, 4);
  EXPECT_EQ(own.Index(1, 0), 2);
  EXPECT_EQ(own.Index(1, 1), 3);
  const MicroBatches shared = SplitMicroBatches(8, 4, 1);
  EXPECT_EQ(shared.Index(1, 0), 1);
  EXPECT_EQ(shared.Index(1, 1), 5);
  const MicroBatches hybrid = SplitMicroBatches(8, 4, 2);
  EXPECT_EQ(hybrid.Index(1, 0), 1);
  EXPECT_EQ(hybrid.Index(1, 1), 3);
  EXPECT_EQ(hybrid.Index(2, 0), 4);
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

v1::TrainSpec Falling(v1::ScheduleKind kind) {
  v1::TrainSpec train = Train(1, 1);
  train.set_steps(12);
  train.mutable_optimizer()->set_lr(1.0);
  train.mutable_schedule()->set_kind(kind);
  train.mutable_schedule()->set_warmup(2);
  train.mutable_schedule()->set_min_lr(0.2);
  train.mutable_schedule()->set_decay(4);
  return train;
}

void ExpectRates(const v1::TrainSpec& train, const std::vector<double>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(LearningRate(train, static_cast<int64_t>(i) + 1), expected[i], 1e-15) << i + 1;
  }
}

TEST(LearningRate, LinearFallsFromWarmUpToTheLastStep) {
  ExpectRates(Falling(v1::SCHEDULE_KIND_LINEAR),
              {0.5, 1, 0.92, 0.84, 0.76, 0.68, 0.6, 0.52, 0.44, 0.36, 0.28, 0.2});
}

TEST(LearningRate, WsdWarmsUpStaysAndDecaysOverTheLastSteps) {
  ExpectRates(Falling(v1::SCHEDULE_KIND_WSD), {0.5, 1, 1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2});
  v1::TrainSpec train = Falling(v1::SCHEDULE_KIND_WSD);
  train.mutable_schedule()->set_decay(10);
  ExpectRates(train, {0.5, 1, 0.92, 0.84, 0.76, 0.68, 0.6, 0.52, 0.44, 0.36, 0.28, 0.2});
}

TEST(LearningRate, CosineIsHalfWayInTheMiddle) {
  ExpectRates(Falling(v1::SCHEDULE_KIND_COSINE),
              {0.5, 1, 0.6 + 0.4 * std::cos(std::numbers::pi * 0.1)});
  EXPECT_NEAR(LearningRate(Falling(v1::SCHEDULE_KIND_COSINE), 7), 0.6, 1e-15);
}

// A checkpoint of these steps goes on with more of them at the rates of the run that had more from
// its start.
TEST(LearningRate, DoesNotDependOnTheStepsWhereItStays) {
  for (const v1::ScheduleKind kind : {v1::SCHEDULE_KIND_WSD, v1::SCHEDULE_KIND_CONSTANT}) {
    v1::TrainSpec longer = Falling(kind);
    longer.set_steps(100);
    for (int64_t step = 1; step <= 8; ++step) {
      EXPECT_EQ(LearningRate(longer, step), LearningRate(Falling(kind), step)) << step;
    }
  }
}

// Resumed with fewer steps than it had come to, a job has nothing left to train.
TEST(LearningRate, StaysAtTheMinimumBeyondTheLastStep) {
  for (const v1::ScheduleKind kind :
       {v1::SCHEDULE_KIND_WSD, v1::SCHEDULE_KIND_LINEAR, v1::SCHEDULE_KIND_COSINE}) {
    EXPECT_NEAR(LearningRate(Falling(kind), 50), 0.2, 1e-15);
  }
}

}  // namespace
}  // namespace sherd
