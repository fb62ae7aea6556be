#include "worker/train/straggler_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace sherd {
namespace {

std::vector<Straggler> AddTimes(StragglerWatch& watch, const std::vector<double>& seconds,
                                int times) {
  std::vector<Straggler> found;
  for (int i = 0; i < times; ++i) {
    for (const Straggler& each : watch.Add(seconds)) found.push_back(each);
  }
  return found;
}

// F39: a rank that stays slower than the others is named, once.
TEST(StragglerWatch, NamesARankThatStaysSlow) {
  StragglerWatch watch({1, 1, 1, 1});
  EXPECT_TRUE(AddTimes(watch, {0.1, 0.1, 0.16, 0.1}, 19).empty());
  const std::vector<Straggler> found = AddTimes(watch, {0.1, 0.1, 0.16, 0.1}, 1);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].seconds, 0.16);
  EXPECT_EQ(found[0].median_seconds, 0.1);
  EXPECT_TRUE(AddTimes(watch, {0.1, 0.1, 0.16, 0.1}, 100).empty());
  // It recovers, and falls behind again.
  AddTimes(watch, {0.1, 0.1, 0.1, 0.1}, 1);
  EXPECT_EQ(AddTimes(watch, {0.1, 0.1, 0.16, 0.1}, 20).size(), 1u);
}

TEST(StragglerWatch, OneSlowStepOrABlinkIsNone) {
  StragglerWatch watch({1, 1});
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(AddTimes(watch, {0.1, 0.9}, 19).empty());
    EXPECT_TRUE(AddTimes(watch, {0.1, 0.1}, 1).empty());
  }
  EXPECT_TRUE(AddTimes(watch, {0.001, 0.0025}, 100).empty());
  StragglerWatch alone({1});
  EXPECT_TRUE(AddTimes(alone, {5}, 100).empty());
}

// Who has more micro-batches takes longer by right; who has none is not looked at.
TEST(StragglerWatch, LooksAtMicroBatches) {
  StragglerWatch watch({2, 1, 0});
  EXPECT_TRUE(AddTimes(watch, {0.2, 0.1, 0.0}, 100).empty());
  EXPECT_EQ(AddTimes(watch, {0.4, 0.1, 0.0}, 20).size(), 1u);
}

TEST(LossWatch, ASpikeIsFarAboveWhatTheLossMovesBy) {
  LossWatch watch;
  for (int step = 0; step < 500; ++step) {
    const double noise = 0.05 * std::sin(step * 1.7);
    EXPECT_FALSE(watch.Add(5.0 / (1 + step * 0.01) + noise)) << step;
  }
  EXPECT_TRUE(watch.Add(4.0));
  EXPECT_TRUE(watch.Add(4.0));
  EXPECT_FALSE(watch.Add(0.85));
}

// The first steps are wild, and a loss that falls is no spike.
TEST(LossWatch, KnowsNothingAtFirst) {
  LossWatch watch;
  for (const double loss : {5.0, 9.0, 4.0, 12.0, 3.0}) EXPECT_FALSE(watch.Add(loss));
}

}  // namespace
}  // namespace sherd
