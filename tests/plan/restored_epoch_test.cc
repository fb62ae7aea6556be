#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "plan/holdings.h"
#include "tests/support/jobs.h"

namespace sherd {
namespace {

using ::testing::Eq;
using ::testing::Optional;

struct Held {
  int64_t epoch;
  int world;
  int owner;
  int64_t step;
};

Holder Process(const std::string& name, const std::vector<Held>& held) {
  Holder holder{name, {}};
  for (const Held& each : held) {
    v1::Holding& holding = holder.holdings.emplace_back();
    holding.set_epoch(each.epoch);
    holding.set_world(each.world);
    holding.set_owner(each.owner);
    holding.set_step(each.step);
  }
  return holder;
}

TEST(RestoredEpoch, IsTheLoggedOneWhenNothingWasTrainedSince) {
  const std::vector<Holder> holders = {Process("a", {{1, 2, 0, 5}, {2, 2, 0, 5}}),
                                       Process("b", {{1, 2, 1, 5}})};
  EXPECT_EQ(RestoredEpoch(1, {{2, 5}}, holders), 1);
  EXPECT_EQ(RestoredEpoch(1, {}, holders), 1);
}

TEST(RestoredEpoch, AStepThatAnEpochTrainedProvesThatAllItsRanksHadRestored) {
  EXPECT_EQ(RestoredEpoch(1, {{2, 5}}, {Process("a", {{2, 2, 0, 6}})}), 2);
  EXPECT_EQ(RestoredEpoch(1, {{2, 0}, {3, 0}}, {Process("a", {{2, 2, 0, 1}})}), 2);
}

TEST(RestoredEpoch, CopiesOfASmallerWorldDoNotOutnumberWhatALargerOneCommitted) {
  const v1::JobSpec spec = testing::MakeJob("zero3", v1::DATA_TYPE_FP32, 1);
  // Epoch 2 grew from two ranks to three and committed step 6; its rank 2 ended before the
  // coordinator had heard that all were ready. Every process still has all of step 5.
  const std::vector<Holder> holders = {
      Process("a", {{1, 2, 0, 5}, {1, 2, 1, 5}, {2, 3, 0, 6}, {2, 3, 2, 6}}),
      Process("b", {{1, 2, 0, 5}, {1, 2, 1, 5}, {2, 3, 1, 6}, {2, 3, 0, 6}})};
  EXPECT_THAT(ChooseVersion(spec, /*restored=*/1, holders), Optional(Eq(Version{1, 2, 5})));
  EXPECT_THAT(ChooseVersion(spec, RestoredEpoch(1, {{2, 5}}, holders), holders),
              Optional(Eq(Version{2, 3, 6})));
}

}  // namespace
}  // namespace sherd
