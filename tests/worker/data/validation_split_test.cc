#include "worker/data/validation_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace sherd {
namespace {

using testing::HasSubstr;

ValidationSplit Make(int64_t windows, double fraction, uint64_t seed = 1) {
  const auto split = ValidationSplit::Make(windows, fraction, seed);
  EXPECT_TRUE(split.ok()) << split.status();
  return *split;
}

TEST(ValidationSplit, EveryWindowIsOnOneSideInOrder) {
  for (const double fraction : {0.5, 0.1, 0.3, 1.0 / 7, 0.017, 0.4999}) {
    for (const int64_t windows : {60, 61, 62, 63, 1000, 4097}) {
      const ValidationSplit split = Make(windows, fraction);
      EXPECT_EQ(split.training() + split.validation(), windows);
      int64_t training = 0;
      int64_t validation = 0;
      for (int64_t window = 0; window < windows; ++window) {
        if (split.IsHeldOut(window)) {
          ASSERT_EQ(split.ValidationWindow(validation++), window);
        } else {
          ASSERT_EQ(split.TrainingWindow(training++), window);
        }
        // Of every prefix the fraction is held out.
        ASSERT_LT(
            std::abs(static_cast<double>(validation) - fraction * static_cast<double>(window + 1)),
            1 + 1e-6);
      }
      EXPECT_EQ(training, split.training());
      EXPECT_EQ(validation, split.validation());
    }
  }
}

TEST(ValidationSplit, WhatIsAppendedChangesNothingBeforeIt) {
  const ValidationSplit before = Make(1000, 0.05);
  const ValidationSplit after = Make(5000, 0.05);
  for (int64_t i = 0; i < before.training(); ++i) {
    ASSERT_EQ(before.TrainingWindow(i), after.TrainingWindow(i));
  }
  for (int64_t i = 0; i < before.validation(); ++i) {
    ASSERT_EQ(before.ValidationWindow(i), after.ValidationWindow(i));
  }
}

TEST(ValidationSplit, DependsOnTheSeedAndOnNoPlaceInAStratum) {
  const ValidationSplit split = Make(100000, 0.1, 5);
  const ValidationSplit other = Make(100000, 0.1, 6);
  std::vector<int> places(11, 0);
  int same = 0;
  for (int64_t i = 0; i < split.validation(); ++i) {
    ++places[static_cast<size_t>(split.ValidationWindow(i) - 10 * i)];
    same += split.ValidationWindow(i) == other.ValidationWindow(i) ? 1 : 0;
  }
  // 10,000 draws among ten: 1000 each, with a deviation of 30.
  for (size_t place = 0; place < 10; ++place) EXPECT_NEAR(places[place], 1000, 150) << place;
  EXPECT_NEAR(same, 1000, 150);
}

TEST(ValidationSplit, TakesTheLargestCounts) {
  const int64_t windows = int64_t{1} << 62;
  const ValidationSplit split = Make(windows, 1e-9);
  // 4 / 2^32 of them.
  EXPECT_EQ(split.validation(), int64_t{1} << 32);
  const int64_t last = split.TrainingWindow(split.training() - 1);
  EXPECT_GE(last, windows - 2);
  EXPECT_FALSE(split.IsHeldOut(last));
}

TEST(ValidationSplit, SaysWhatIsWrong) {
  const auto error = [](int64_t windows, double fraction) {
    return std::string(ValidationSplit::Make(windows, fraction, 1).status().message());
  };
  for (const double fraction :
       {0.0, -0.1, 0.51, 1.0, std::numeric_limits<double>::quiet_NaN(), 1e-12}) {
    EXPECT_THAT(error(100, fraction), HasSubstr("at most 0.5")) << fraction;
  }
  EXPECT_THAT(error(0, 0.1), HasSubstr("0 windows cannot be split"));
  EXPECT_THAT(error(1, 0.5), HasSubstr("both need at least one"));
}

}  // namespace
}  // namespace sherd
